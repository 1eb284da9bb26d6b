# `make train` and `make test` set up everything they need in .venv; PYTHON chooses the interpreter (3.11 to 3.13).
FITS = import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(firstword $(foreach name,python3 python3.12 python3.13 python3.11,$(shell $(name) -c '$(FITS)' 2>/dev/null && echo $(name))))
VENV ?= .venv
BIN = $(VENV)/bin
# Without a C++ compiler and Python's headers torch.compile has nothing to compile a CPU's kernels with.
NO_COMPILER = $(if $(or $(and $(CXX_FOUND),$(HEADER_FOUND)),$(GPU_FOUND)),,compile.mode=eager)
CXX_FOUND = $(shell command -v g++ || command -v clang++)
HEADER_FOUND = $(wildcard $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h)
GPU_FOUND = $(shell command -v nvidia-smi)

# All studies, at full size on a GPU and at a small one on a CPU; what was finished before is not run again.
STUDIES ?= $(patsubst conf/experiment/studies/%.yaml,%,$(wildcard conf/experiment/studies/*.yaml))
SIZE = $(if $(GPU_FOUND),,small/)
DEPTHS = $(if $(GPU_FOUND),12 48,2)
ROWS = runs/studies/$(if $(GPU_FOUND),full,small)
# The stages of the studies real_time and emergencies, width:depth:window:lr of each. They are trained once.
NETWORKS = $(if $(GPU_FOUND),2048:4:8:1e-4 1024:4:6:1e-4 512:2:4:1e-3 64:1:2:1e-3, \
	160:3:8:1e-3 96:3:6:1e-3 48:2:4:1e-3 16:1:2:1e-3)

# The committed rows with a page of their own: docs/NAME of measurements/NAME.jsonl.
REPORTS = $(filter $(notdir $(wildcard docs/*)),$(basename $(notdir $(wildcard measurements/*.jsonl))))

# The tests of the packages without torch.
COVERING = tests/analysis tests/config tests/report tests/results tests/test_stats.py

.PHONY: train test faults coverage studies networks pages docs docs-test check setup

train: setup
	$(BIN)/python train.py $(NO_COMPILER) $(ARGS)

# All tests: first those of the packages without torch, with their coverage, then the others.
test: coverage
	$(BIN)/python -m pytest -n 2 $(addprefix --ignore=,$(COVERING))

# The campaign of tests/faults: `make faults FAULTS_SEED=7` repeats that of a seed. Counts go to tests/faults/tally.jsonl.
# Each test has a time limit, in all 30 minutes on two cores: a slow or busy machine makes fewer tries.
faults: FAULTS_SEED ?= $(shell date +%s)
faults: setup
	@echo "seed $(FAULTS_SEED)"
	TRAINKIT_FAULTS_SEED=$(FAULTS_SEED) $(BIN)/python -m pytest -n 2 --dist worksteal tests/faults

# Coverage's tracer and Dynamo's slow each other down many times over.
coverage: setup
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered $(COVERING)

studies: setup
	for study in $(STUDIES); do \
		script=train.py; \
		! grep -q '^  kind: forward' conf/experiment/studies/$$study.yaml || script=scripts/bench.py; \
		case $$study in real_time | emergencies) $(MAKE) networks || exit ;; esac; \
		sweep() { \
			$(BIN)/python $$script -m experiment=studies/$(SIZE)$$study \
				hydra.sweep.dir=$(ROWS)/$$study $(ARGS) "$$@" || [ $$? = 1 ] || exit; \
		}; \
		also=$$(sed -n 's/^  also: //p' conf/experiment/studies/$$study.yaml); \
		sweep; \
		[ -z "$$also" ] || sweep $$also; \
		[ $$study != compile_cost ] || for depth in $(DEPTHS); do \
			[ -f $(ROWS)/$$study/diagnosis-$$depth.json ] || $(BIN)/python scripts/diagnose.py experiment=studies/$(SIZE)$$study model.depth=$$depth compile.cache=warm \
				--stages --no-measure --json $(ROWS)/$$study/diagnosis-$$depth.json || exit; \
		done; \
	done
	$(BIN)/python scripts/studies.py $(ROWS)

networks: setup # two at a time: nothing is measured
	for network in $(NETWORKS); do echo $$network | tr : ' '; done | OMP_NUM_THREADS=1 xargs -P 2 -L 1 sh -c ' \
		folder=runs/networks/digits_pipeline-$$1; \
		[ -f $$folder/checkpoints/last.ckpt ] || exec $(BIN)/python train.py experiment=digits_pipeline compile.mode=eager \
			model.width=$$1 model.depth=$$2 model.window=$$3 optimizer.lr=$$4 hydra.run.dir=$$folder' network

# The committed pages and plots, from the committed rows.
pages: setup
	$(BIN)/python scripts/studies.py measurements --into docs/studies
	for name in $(REPORTS); do \
		$(BIN)/python scripts/report.py measurements/$$name.jsonl --into docs/$$name >/dev/null || exit; \
	done
	$(BIN)/python scripts/report.py measurements/control.jsonl --markdown >docs/studies/control/report.md
	$(BIN)/python scripts/constructs.py --page
	$(BIN)/python scripts/reference.py >/dev/null

# The site of docs/, in site/. A link that leads nowhere fails; with --quiet no warning would.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The commands of the README and of the guides, with few batches; those that need a GPU where there is one.
# `make docs-test PAGE=quickstart` runs those of one page.
docs-test: setup
	$(BIN)/python -m pytest -m "docs$(if $(GPU_FOUND),, and not gpu)" --durations=0 -k "$(PAGE)" tests/docs

check: setup docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.13 with venv was found: install one, or say make PYTHON=..."; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON): some minutes, once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
