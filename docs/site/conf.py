"""Sphinx settings of the documentation site: `make docs`.

The pages are the Markdown files of the repository, which link each other as on GitHub. MyST checks
these links; the site needs no network.
"""

import pathlib
import re
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT))

project = "Estimator models"
copyright = "Estimator models contributors"  # noqa: A001, Sphinx's name
release = re.search(r'(?m)^version = "(.*)"', (_ROOT / "pyproject.toml").read_text())[1]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

root_doc = "README"
_OTHERS = ("CHANGELOG", "CONTRIBUTING", "SECURITY", "tpu/README")
include_patterns = [f"{name}.md" for name in (root_doc, *_OTHERS, "docs/*", "docs/site/api")]
exclude_patterns = [".*", "build", "data", "runs", "tests"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "misc.highlighting_failure"]  # how it looks, not links
highlight_language = "text"  # of blocks without a language

# TensorFlow is not in .venv-docs.
autodoc_mock_imports = ["tensorflow", "tensorflow_estimator", "tensorboard"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"  # docstrings have Markdown's `code`

html_theme = "furo"
html_title = f"{project} {release}"
html_extra_path = ["extra"]
html_search_scorer = str(_ROOT / "docs" / "site" / "scorer.js")
html_show_sourcelink = False
html_copy_source = False

_NAVIGATION = {
    "Start": ["install", "python", "notebooks", "choose", "troubleshooting"],
    "Data": ["data", "data_images", "data_boxes", "data_text", "own_data"],
    "Models": ["models", "own_model", "running", "results"],
    "Images": ["targets", "detection", "segmentation", "instance_segmentation", "gan", "keras"],
    "Text": ["text", "bert", "question_answering", "language_models", "translation", "embeddings"],
    "Sound, tables, play": ["speech", "recommendation", "reinforcement_learning"],
    "TPU": ["which_tpu", "other_programs", "old_programs", "check", "cloud_tpu_vm"],
    "Run and serve": ["serving", "clusters", "containers", "kubernetes", "faults"],
    "Reference": ["site/api", "support", "architecture"],
}

# Words of readers, for the search and the index. Without them all pages with a word are equal.
_KEYWORDS = {
    "choose": "glossary; Keras 3; JAX; PyTorch; leave",
    "clusters": "multiple GPUs; several GPUs; TF_CONFIG; parameter server; MirroredStrategy",
    "cloud_tpu_vm": "TPU VM; gcloud; preemption; spot TPU",
    "data": "gs://; shuffle; tensorflow-datasets; prepare data; CSV; Apache Beam",
    "data_boxes": "COCO JSON; Pascal VOC; bounding boxes; masks",
    "data_images": "image folder; augmentation; ImageNet; CSV of images",
    "data_text": "vocabulary; WordPiece; CSV of texts",
    "detection": "object detection; Label Studio; RetinaNet",
    "faults": "exit status; resume training; kill; disk full",
    "install": "GPU; no GPU found; CUDA; Python 3.8; NumPy 2; Keras 3; Windows; macOS",
    "keras": "tf.keras; TF Hub; coming from tensorflow/tpu; Keras weights",
    "models": "ResNet; MobileNet; transfer learning; fine-tune; warm start; recipe",
    "notebooks": "Colab; Kaggle; Jupyter; notebook",
    "other_programs": "emulator; emulate; compare; TPUEstimator program; Shakespeare",
    "own_data": "custom data; input pipeline; input_fn; own data",
    "own_model": "custom model; model_fn; own model; GAN",
    "results": "speed; accuracy; benchmark; memory",
    "running": "early stopping; learning rate schedule; gradient accumulation; EMA; report; "
    "train_and_eval; resume training; checkpoint; optimizer; TensorBoard; reproducible; seed",
    "serving": "TensorFlow Serving; TensorFlow Lite; ONNX; OpenVINO; SavedModel; export; Triton",
    "targets": "class weights; imbalanced classes; multi-label; regression; oversampling",
    "text": "text classification; named entities; long documents; fine-tune BERT",
    "troubleshooting": "error message; results differ between runs; NaN; NaN loss; out of memory",
    "which_tpu": "which TPU; v2; v3; v4; v5e; v5p; v6e; PJRT; JAX; pods",
}


def _add_keywords(app, page, source):
    """Prepends the entries of the index to a page."""
    words = _KEYWORDS.get(page.removeprefix("docs/"))
    if words:
        entries = ", ".join(f"!{word}" for word in words.split("; "))  # !: the main entry
        source[0] = f"```{{index}} {entries}\n```\n\n{source[0]}"


def _without_folders(app, page, source):
    """Replaces links to folders, which only GitHub shows, by their text."""
    here = (_ROOT / page).parent

    def shown(link):
        return link[1] if (here / link[2]).is_dir() else link[0]

    source[0] = re.sub(r"\[([^\[\]]+)\]\(([^()#:]+)\)", shown, source[0])


def _add_navigation(app, page, source):
    """Appends the table of contents, which GitHub does not need, to the first page."""
    if page == root_doc:
        named = {name for pages in _NAVIGATION.values() for name in pages}
        others = sorted({path.stem for path in (_ROOT / "docs").glob("*.md")} - named)
        for caption, pages in {**_NAVIGATION, "More": others}.items():
            entries = "\n".join(f"docs/{name}" for name in pages)
            if caption == "Reference":
                entries += "\n" + "\n".join(_OTHERS)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def _literal_blocks(app, what, name, objects, options, lines):
    """Marks the example of a module's docstring as code."""
    starts = [i for i, line in enumerate(lines) if i and line[:4] == "    " and not lines[i - 1]]
    if what == "module" and starts:
        lines[starts[0] : starts[0]] = ["::", ""]


def setup(app):
    """Connects the functions above."""
    app.connect("source-read", _without_folders)
    app.connect("source-read", _add_navigation)
    app.connect("source-read", _add_keywords)
    app.connect("autodoc-process-docstring", _literal_blocks)
