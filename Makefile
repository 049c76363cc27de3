# make run    set up .venv, prepare the digits, train, evaluate, export, serve one prediction
# make test   set up .venv, run the linter and the tests; make test-all runs the slow ones, too,
#             make test-kernels the numeric ones with other CPU kernels
# TENSORFLOW=  tensorflow (default) | cpu (lighter) | gpu (with CUDA) | system (the image's own wheel)
# PYTHON=      the interpreter for .venv; default: the first of python3.11, 3.10, 3.9 that is there
TENSORFLOW ?= tensorflow
IN_VENV := .venv/bin/python
PYTEST := $(IN_VENV) -m pytest -n 2 --dist worksteal
DATA := data
RUNS := runs
# These ask for the wheel of this name, and would bring it in beside another.
WITH_TENSORFLOW := $(if $(filter tensorflow,$(TENSORFLOW)),text_ops serving)

# How the numeric tests are run once more: Eigen's kernels, and oneDNN's for a CPU with AVX2 alone.
KERNELS ?= TF_ENABLE_ONEDNN_OPTS=0 TF_ENABLE_ONEDNN_OPTS=1,ONEDNN_MAX_CPU_ISA=AVX2

.PHONY: run test test-all test-kernels lint format lock bench-train bench-keras bench-input bench-memory bench-serving chaos fuzz kill-matrix mutations report bazel clean setup setup-dev

run: setup
	@$(IN_VENV) prepare_data.py --dataset=digits --data_dir=$(DATA)/digits
	@$(IN_VENV) run_cpu.py --flagfile=configs/digits.cfg --data_dir=$(DATA)/digits \
	  --model_dir=$(RUNS)/digits --export_dir=$(RUNS)/digits/export
	@$(IN_VENV) tools/serve_one.py $(RUNS)/digits/export

test: lint
	@$(PYTEST) -m "not slow"

test-all: lint
	@$(PYTEST)

test-kernels: setup-dev
	@for setting in $(KERNELS); do \
	  setting="$$(echo $$setting | tr , ' ')"; echo "$$setting"; \
	  env $$setting $(PYTEST) -m "numeric and not slow" || exit 1; done

lint: setup-dev
	@$(IN_VENV) -m ruff check . && $(IN_VENV) -m ruff format --check .

format: setup-dev
	@$(IN_VENV) -m ruff check --fix . && $(IN_VENV) -m ruff format .

# Examples/s and time to the first step against tf.keras, interleaved.
bench-train: setup
	@$(IN_VENV) -m benchmarks.train_speed

# Fashion-MNIST accuracy beside the tf.keras twin: make bench-keras SOURCE=folder/with/idx/files
bench-keras: setup
	@$(IN_VENV) -m benchmarks.fashion_mnist --source=$(SOURCE)

# Input pipelines alone, against others', and against a training step: make bench-input
bench-input: setup
	@$(IN_VENV) -m benchmarks.input_speed

# Peak memory as the epochs grow: make bench-memory SOURCE=folder/with/idx/files
bench-memory: setup
	@$(IN_VENV) -m benchmarks.memory --source=$(SOURCE)

# SavedModels by runtime against those of tf.keras.
bench-serving: setup
	@tools/setup.sh $(TENSORFLOW) $(WITH_TENSORFLOW)
	@$(IN_VENV) -m benchmarks.serving_speed

# Do the tests notice faults? Twenty are put into copies of the core code: half an hour.
mutations: setup-dev
	@$(IN_VENV) -m tools.mutations

# Builds every target of BUILD, and runs one py_test a test file in Bazel's sandbox, without a network:
# half an hour. TARGETS=//:models_test_mlp runs one. Bazel is Debian's bazel-bootstrap.
TARGETS := //...
bazel: setup-dev
	@command -v bazel > /dev/null || { echo "bazel is missing: apt-get install bazel-bootstrap"; exit 1; }
	@PATH="$(CURDIR)/.venv/bin:$$PATH" bazel build //...
	@PATH="$(CURDIR)/.venv/bin:$$PATH" bazel test $(TARGETS)

# One HTML page about a run: make report MODEL_DIR=runs/digits
report: setup
	@$(IN_VENV) -m tools.report $(MODEL_DIR)

# Kills trainings and members of a cluster, and shows that nothing is lost: ten minutes.
chaos: setup
	@$(IN_VENV) -m tools.chaos

# Feeds the programs mutated files, flags and requests: make fuzz MINUTES=60
MINUTES ?= 10
fuzz: setup
	@tools/setup.sh $(TENSORFLOW) $(WITH_TENSORFLOW)
	@$(IN_VENV) -m tools.fuzz --minutes=$(MINUTES)

# Kills the programs at each system call that changes a file (Linux, seccomp): make kill-matrix POINTS=20
POINTS ?= 20
kill-matrix: setup
	@$(IN_VENV) -m tools.kill_matrix --points=$(POINTS)

# Writes the locked requirements anew from pyproject.toml, for Python 3.9 to 3.11 at once.
lock: setup-dev
	@$(IN_VENV) -m pip install --quiet uv
	@for extra in tensorflow cpu gpu; do \
	  $(IN_VENV) -m uv pip compile --quiet --universal --python-version 3.9 --no-header --no-annotate \
	    --extra $$extra -o requirements/$$extra.txt pyproject.toml || exit 1; done
	@for extra in text text_ops serving dev; do \
	  $(IN_VENV) -m uv pip compile --quiet --universal --python-version 3.9 --no-header --no-annotate \
	    --extra $$extra -c requirements/tensorflow.txt -o requirements/$$extra.txt pyproject.toml || exit 1; done

setup:
	@tools/setup.sh $(TENSORFLOW)

setup-dev:
	@tools/setup.sh $(TENSORFLOW) dev check $(WITH_TENSORFLOW)

clean:
	rm -rf .venv $(DATA) $(RUNS)
