# make run           sets up .venv, prepares the digits, trains, evaluates, exports, serves one prediction
# make test          sets up .venv, runs the linter and the tests
# make test-all      also runs the slow tests
# make test-kernels  runs the numeric tests with other CPU kernels
# make docs          sets up .venv-docs, builds the documentation site in build/docs
# make test-beam     sets up .venv-beam, runs the tests of prepare_data.py --runner=beam
# TENSORFLOW=  tensorflow | cpu (smaller) | gpu (with CUDA) | system (the wheel of the image); default:
#              the one in .venv, and tensorflow for a new .venv
# PYTHON=      interpreter for .venv; default: the first of python3.11, python3.10, python3.9
TENSORFLOW ?= $(or $(firstword $(shell head -n 1 .venv/.installed 2>/dev/null)),tensorflow)
IN_VENV := .venv/bin/python
# --no-loadscope-reorder: otherwise files with few tests start last, and some of these take longest.
# --max-worker-restart=0: after a crash of a worker (SIGSEGV, SIGABRT) another would run its file
# again, and pytest-xdist can wait forever for the rest of it.
PYTEST := $(IN_VENV) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0
DATA := data
RUNS := runs
# These extras depend on the wheel `tensorflow` and would install it next to another one.
WITH_TENSORFLOW := $(if $(filter tensorflow,$(TENSORFLOW)),text_ops serving)

# Settings of make test-kernels: Eigen kernels; oneDNN kernels limited to AVX2.
KERNELS ?= TF_ENABLE_ONEDNN_OPTS=0 TF_ENABLE_ONEDNN_OPTS=1,ONEDNN_MAX_CPU_ISA=AVX2

.PHONY: run test test-all test-kernels test-beam docs notebooks lint format lock bench-train bench-keras bench-input bench-memory bench-serving chaos fuzz kill-matrix mutations report bazel image-check clean setup setup-dev

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

# Apache Beam takes other versions of some packages than .venv has.
test-beam:
	@test -d .venv-beam || $(or $(PYTHON),python3) -m venv .venv-beam
	@.venv-beam/bin/python -m pip install --quiet -r requirements/beam.txt pytest
	@.venv-beam/bin/python -m pytest tests/input_fns/convert/test_beam_runner.py

# Builds the site. A warning, such as a link to a missing page or heading, is an error.
docs:
	@test -d .venv-docs || $(or $(PYTHON),python3) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	@.venv-docs/bin/python -m sphinx -q -W --keep-going -c docs/site . build/docs
	@echo "open build/docs/index.html"

# Runs the notebooks and stores their outputs: ten minutes.
notebooks: setup-dev
	@$(IN_VENV) -m tools.notebooks

lint: setup-dev
	@$(IN_VENV) -m ruff check . && $(IN_VENV) -m ruff format --check .

format: setup-dev
	@$(IN_VENV) -m ruff check --fix . && $(IN_VENV) -m ruff format .

# Training speed and time to the first step, compared with tf.keras.
bench-train: setup
	@$(IN_VENV) -m benchmarks.train_speed

# Fashion-MNIST accuracy, compared with tf.keras: make bench-keras SOURCE=folder/with/idx/files
bench-keras: setup
	@$(IN_VENV) -m benchmarks.fashion_mnist --source=$(SOURCE)

# Input pipeline speed, compared with other pipelines and with a training step.
bench-input: setup
	@$(IN_VENV) -m benchmarks.input_speed
	@$(IN_VENV) -m benchmarks.input_tasks

# Peak memory by number of epochs: make bench-memory SOURCE=folder/with/idx/files
bench-memory: setup
	@$(IN_VENV) -m benchmarks.memory --source=$(SOURCE)

# Latency of SavedModels in each runtime, compared with tf.keras.
bench-serving: setup
	@tools/setup.sh $(TENSORFLOW) $(WITH_TENSORFLOW)
	@$(IN_VENV) -m benchmarks.serving_speed

# Runs the tests against twenty deliberate faults in copies of the code: half an hour.
mutations: setup-dev
	@$(IN_VENV) -m tools.mutations

# Builds every target of BUILD and runs each test file in Bazel's sandbox, without a network: half an
# hour. TARGETS=//:models_test_mlp runs one. Needs bazel-bootstrap (Debian).
TARGETS := //...
bazel: setup-dev
	@command -v bazel > /dev/null || { echo "bazel is missing: apt-get install bazel-bootstrap"; exit 1; }
	@PATH="$(CURDIR)/.venv/bin:$$PATH" bazel build //...
	@PATH="$(CURDIR)/.venv/bin:$$PATH" bazel test $(TARGETS)

# Builds container images and runs them (docs/containers.md): make image-check IMAGES=cpu,gpu,dev
# BASE=  base image, for a machine without a registry of images (tools/image/base.sh)
IMAGES ?= cpu
image-check:
	@python3 -m tools.image_check --targets=$(IMAGES) $(if $(BASE),--base=$(BASE))

# Writes one HTML page about a run, or about several: make report MODEL_DIR="runs/a runs/b"
report:
	@tools/setup.sh $(TENSORFLOW) report
	@$(IN_VENV) -m tools.report $(MODEL_DIR)

# Kills trainings and cluster processes and compares the weights with an undisturbed run: ten minutes.
chaos: setup
	@$(IN_VENV) -m tools.chaos

# Runs the programs on mutated files, flags and requests: make fuzz MINUTES=60
MINUTES ?= 10
fuzz: setup
	@tools/setup.sh $(TENSORFLOW) $(WITH_TENSORFLOW)
	@$(IN_VENV) -m tools.fuzz --minutes=$(MINUTES)

# Kills the programs before system calls that change a file (Linux, seccomp): make kill-matrix POINTS=20
POINTS ?= 20
kill-matrix: setup
	@$(IN_VENV) -m tools.kill_matrix --points=$(POINTS)

# Updates the locked requirements from pyproject.toml, for Python 3.9 to 3.11.
lock: setup-dev
	@$(IN_VENV) -m pip install --quiet uv
	@for extra in tensorflow cpu gpu; do \
	  $(IN_VENV) -m uv pip compile --quiet --universal --python-version 3.9 --no-header --no-annotate \
	    --extra $$extra -o requirements/$$extra.txt pyproject.toml || exit 1; done
	@$(IN_VENV) -m uv pip compile --quiet --universal --python-version 3.9 --no-header --no-annotate \
	  $(foreach extra,tensorflow beam text detection audio heic,--extra $(extra)) \
	  -o requirements/beam.txt pyproject.toml
	@for extra in text detection audio heic report text_ops cloud serving pjrt dev docs; do \
	  $(IN_VENV) -m uv pip compile --quiet --universal --python-version 3.9 --no-header --no-annotate \
	    --extra $$extra -c requirements/tensorflow.txt -o requirements/$$extra.txt pyproject.toml || exit 1; done

setup:
	@tools/setup.sh $(TENSORFLOW)

setup-dev:
	@tools/setup.sh $(TENSORFLOW) dev check $(WITH_TENSORFLOW)

clean:
	rm -rf .venv .venv-beam .venv-docs build $(DATA) $(RUNS)
