# make run    set up .venv, prepare the digits, train, evaluate, export, serve one prediction
# make test   set up .venv, run the whole suite
# TENSORFLOW= tensorflow (default) | cpu (lighter) | gpu (with CUDA) | system (the image's own wheel)
TENSORFLOW ?= tensorflow
PYTHON := .venv/bin/python
DATA := data
RUNS := runs

.PHONY: run test lint format lock bench-train bench-keras clean setup setup-dev

run: setup
	@$(PYTHON) prepare_data.py --dataset=digits --data_dir=$(DATA)/digits
	@$(PYTHON) run_cpu.py --flagfile=configs/digits.cfg --data_dir=$(DATA)/digits \
	  --model_dir=$(RUNS)/digits --export_dir=$(RUNS)/digits/export
	@$(PYTHON) tools/serve_one.py $(RUNS)/digits/export

test: setup-dev
	@$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check .
	@$(PYTHON) -m pytest

lint: setup-dev
	@$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check .

format: setup-dev
	@$(PYTHON) -m ruff check --fix . && $(PYTHON) -m ruff format .

# Examples/s and time to the first step against tf.keras, interleaved.
bench-train: setup
	@$(PYTHON) benchmarks/train_speed.py

# Fashion-MNIST accuracy beside the tf.keras twin: make bench-keras SOURCE=folder/with/idx/files
bench-keras: setup
	@$(PYTHON) benchmarks/fashion_mnist.py --source=$(SOURCE)

# Writes the locked requirements anew from pyproject.toml, for Python 3.9 to 3.11 at once.
lock: setup-dev
	@$(PYTHON) -m pip install --quiet uv
	@for extra in tensorflow cpu gpu; do \
	  $(PYTHON) -m uv pip compile --quiet --universal --python-version 3.9 --no-header --no-annotate \
	    --extra $$extra -o requirements/$$extra.txt pyproject.toml || exit 1; done
	@echo 'ruff pytest scikit-learn' | tr ' ' '\n' | $(PYTHON) -m uv pip compile --quiet --universal \
	  --python-version 3.9 --no-header --no-annotate -c requirements/tensorflow.txt \
	  -o requirements/dev.txt -

setup:
	@tools/setup.sh $(TENSORFLOW)

setup-dev:
	@tools/setup.sh $(TENSORFLOW) dev

clean:
	rm -rf .venv $(DATA) $(RUNS)
