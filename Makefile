# make demo | scale-demo | test | test-long | faults | lint | bench | mutants | site | clean. The environment is made in .venv where it is missing.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo scale-demo test test-long faults lint format bench mutants site clean

demo: $(VENV)/.installed
	@$(BIN)/testbed demo

# The same digits on a database in a file, on PostgreSQL with three shards, on a Ray cluster of two nodes and with logits in
# S3, all on this machine; it fails where a logit or a number differs, or where one of them cannot be had.
scale-demo: $(VENV)/.installed-dev
	PYTHONPATH=$(CURDIR)/src:$(CURDIR)/tests $(BIN)/python tools/scale_demo.py

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long"

test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m long

# The fuzz tests with twenty times as many cases as in `make test`, fifty rounds of kills at random moments, races by the
# hundred. A table of rounds, faults and losses stands at its end.
faults: $(VENV)/.installed-dev
	TESTBED_FUZZ=long $(BIN)/python -m pytest -n 2 --dist load tests/faults tests/store/test_races.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# GPUS=0 runs the sweeps on that GPU.
bench: $(VENV)/.installed-dev
	@for script in $(filter-out benchmarks/common.py,$(wildcard benchmarks/*.py)); do \
		echo "== $$script"; \
		case $$script in *sweep.py|*sharing.py|*timm_loop.py) more="$(if $(GPUS),--gpus $(GPUS))";; *) more=;; esac; \
		$(BIN)/python $$script $$more || exit 1; \
	done

# One operator or constant at a time is changed and the mirrored tests are run; MUTANTS='--modules stats/*' chooses.
mutants: $(VENV)/.installed-dev
	@mkdir -p build
	nice -n 10 $(BIN)/python tools/mutants.py --out build/mutants.txt $(MUTANTS)

# The pages of docs/ as a site in build/site; a dead link or a page that the menu lacks is an error.
site: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.installed: requirements.txt pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.installed-dev: requirements.txt requirements-dev.txt pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@ $(VENV)/.installed
