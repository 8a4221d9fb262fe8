# Everything a developer does here, one target each; `make help` lists them.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# The first Python that is new enough; another one: make PYTHON=/path/to/python
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
PACKAGES := infra schemas services pipelines testing
# What else mypy checks. pytest and the interpreter find its modules by other names: .links has a path for each.
CHECKED := benchmarks tests
YAML := compose.yaml infra/kubernetes infra/monitoring .github/workflows .hadolint.yaml .pre-commit-config.yaml .yamllint.yaml
WEB := services/web
BENCHMARKS = $(patsubst benchmarks/%.py,%,$(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)))
SOAK_MINUTES ?= 10
# How many processes `make soak` kills or stops under a running job, in each round
FAULTS ?= 22
# Further arguments for pytest: make test T="tests/infra -k restart"
T ?=
# Unit tests run in as many processes as there are cores. Integration tests run two files at the same time, beside them:
# with more, tests ran into their timeouts. Files that share servers run one after another, and the longest come first
# (tests/conftest.py).
# schemathesis, which only a unit test uses, takes each process a second to load.
SIDE_BY_SIDE := -n auto --dist worksteal
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder -p no:schemathesis
# pytest's exit code where nothing is selected: `T` may name unit tests only, or integration tests only.
NONE_SELECTED := 5

##@ To try it

.PHONY: demo
demo: setup  ## WindowWordCount end to end: Kafka, a cluster, the job, and the story of it from the log
	@$(BIN)/tailrace demo

.PHONY: demo-secure
demo-secure: setup  ## The same on a Kafka with TLS and logins, with a principal and its ACLs for each role
	@PYTHONPATH=tests $(BIN)/python tests/demo_secure.py

.PHONY: demo-hosts
demo-hosts: setup  ## A cluster on three hosts, which are Linux namespaces; one loses its power. Needs root
	@PYTHONPATH=tests $(BIN)/python tests/demo_hosts.py

.PHONY: demo-web
demo-web: setup  ## A cluster that stays up, with a job to look at in the web page; prints the address
	@$(BIN)/python tests/demo_web.py

.PHONY: setup
setup: .make/venv warm  ## The virtual environment, the pinned packages, the jars (quick when it is all there)

##@ To change it

.PHONY: check
check: lint unit  ## What needs no servers: lint and unit tests

.PHONY: lint
lint: .make/venv  ## ruff, mypy --strict, the direction of imports, YAML and Dockerfile, and that generated files are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(addprefix -p tailrace.,$(PACKAGES))
	$(BIN)/lint-imports --no-logo --no-cache
	cd .links && ../$(BIN)/mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache $(addprefix -p ,$(CHECKED))
	$(BIN)/mypy examples/*/*.py
	$(BIN)/python -m tailrace.schemas.generate --check
	$(BIN)/python -m tailrace.services.reference.configuration_page --check
	$(BIN)/python -m tailrace.services.reference.events --check
	$(BIN)/python -m tailrace.services.reference.limits --check
	$(BIN)/python -m tailrace.services.reference.acls_page --check
	$(BIN)/python -m tailrace.services.reference.metrics --check
	$(BIN)/yamllint --strict $(YAML)
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml
	! test -x $(BIN)/hadolint || $(BIN)/hadolint Dockerfile
	! command -v promtool >/dev/null || promtool check rules infra/monitoring/alerts.yaml

.PHONY: pyright
pyright: .make/pyright  ## Programs and examples, and planted mistakes, by pyright (the first time this downloads 70 MB)
	$(BIN)/python tests/pyright_programs.py .make/pyright/bin/basedpyright

.PHONY: lint-web
lint-web: .make/venv $(WEB)/node_modules/.package-lock.json  ## The same for the web page: TypeScript, Biome, and that its built files are up to date
	$(BIN)/python -m tailrace.services.rest.openapi_file build/openapi.json
	cd $(WEB) && npm run --silent types >/dev/null && npm run --silent check
	cd $(WEB) && npm run --silent build -- --logLevel warn --outDir ../../build/web
	@diff -r build/web $(WEB)/static >/dev/null || { echo "$(WEB)/static is not what its sources give: run make web" >&2; exit 1; }

.PHONY: unit
unit: .make/venv  ## The tests that start no servers
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not integration and not soak" $(T)

.PHONY: coverage
coverage: .make/venv  ## Which lines and branches the unit tests run: a summary here, all files in build/coverage/html/index.html
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not integration and not soak" --cov --cov-report=html $(T)
	@for each in $(PACKAGES); do \
		printf '%-10s %3s %%\n' $$each "$$($(BIN)/coverage report --include="$$each/*" --format=total)"; done; \
	printf '%-10s %3s %%\n' all "$$($(BIN)/coverage report --format=total)"; \
	echo "build/coverage/html/index.html has all files"

.PHONY: test
# Unit tests take what the integration tests leave of the processor; what they print comes when those have ended. A shell
# lets its background processes ignore SIGINT, and so their children, which tests interrupt: env undoes that.
test: setup  ## All tests but the long ones, with real Kafka and real Spark
	@mkdir -p build; log=build/unit-tests.log; \
	nice -n 10 env --default-signal=INT $(BIN)/pytest $(SIDE_BY_SIDE) -m "not integration and not soak" --durations=30 $(T) >$$log 2>&1 & unit=$$!; \
	trap 'kill $$unit 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	$(BIN)/pytest $(BY_FILE) -m "integration and not soak" --durations=20 $(T); integration=$$?; \
	echo "unit tests, which ran meanwhile ($$log):"; wait $$unit; unit=$$?; trap - EXIT; \
	if [ $$unit = 0 ]; then grep '^=.* in .*=$$' $$log | tail -n 1; else cat $$log; fi; \
	[ $$unit$$integration != $(NONE_SELECTED)$(NONE_SELECTED) ] && \
	{ [ $$unit = 0 ] || [ $$unit = $(NONE_SELECTED) ]; } && \
	{ [ $$integration = 0 ] || [ $$integration = $(NONE_SELECTED) ]; }

.PHONY: soak
soak: setup  ## Thousands of random histories of clusters and of programs, the integration tests, and every process killed under a job, for SOAK_MINUTES (10)
	@end=$$(($$(date +%s) + 60 * $(SOAK_MINUTES))); round=0; \
	while [ "$$(date +%s)" -lt "$$end" ]; do \
		round=$$((round + 1)); seed=$$(date +%s); echo "soak: round $$round, seeds from $${seed}000"; \
		$(BIN)/pytest tests/services/simulated_cluster/test_chaos.py -q -x --first-seed $${seed}000 --seeds 5000 || exit 1; \
		EXAMPLES=300 $(BIN)/pytest tests/services/test_any_order.py -q --timeout 1800 || exit 1; \
		YEARS=5 $(BIN)/pytest tests/services/simulation/test_year.py -q --timeout 1800 || exit 1; \
		EXAMPLES=100 $(BIN)/pytest $(SIDE_BY_SIDE) -m "not integration" -q --timeout 1800 || exit 1; \
		EXAMPLES=1500 $(BIN)/pytest tests/pipelines/model -q --timeout 1800 || exit 1; \
		EXAMPLES=100 $(BIN)/pytest tests/pipelines/runtime -k checkpoints -q --timeout 1800 || exit 1; \
		KILLS=5 LOSSES=10 $(BIN)/pytest -m integration -q --deselect tests/integration/test_torture.py $(T) || exit 1; \
		FAULTS=$(FAULTS) $(BIN)/pytest tests/integration/test_torture.py tests/integration/test_exactly_once.py -q -s || exit 1; \
	done

.PHONY: web
web: .make/venv $(WEB)/node_modules/.package-lock.json  ## The web page, from its sources: services/web/static
	$(BIN)/python -m tailrace.services.rest.openapi_file build/openapi.json
	cd $(WEB) && npm run --silent types >/dev/null && npm run --silent format && npm run --silent build -- --logLevel warn

$(WEB)/node_modules/.package-lock.json: $(WEB)/package-lock.json
	@command -v npm >/dev/null || { echo "tailrace: Node.js 18.18 or newer is missing: install it with your package manager,\
	 e.g. apt-get install -y nodejs npm" >&2; exit 1; }
	cd $(WEB) && npm ci --silent
	@touch $@

.PHONY: format
format: .make/venv  ## Lays the code out and mends what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: schemas
schemas: .make/venv  ## The Python classes of the events, anew from the .avsc files
	$(BIN)/python -m tailrace.schemas.generate

.PHONY: configuration
configuration: .make/venv  ## docs/configuration.md anew from the table of options
	$(BIN)/python -m tailrace.services.reference.configuration_page

.PHONY: api-docs
api-docs: .make/venv  ## The API reference of the public package, from its docstrings: build/api/index.html
	$(BIN)/python docs/api_docs.py build/api
	@echo "wrote build/api/index.html"

.PHONY: events
events: .make/venv  ## docs/events.md, from the .avsc files and the roles' step tables
	$(BIN)/python -m tailrace.services.reference.events

.PHONY: asyncapi
asyncapi: .make/venv  ## docs/asyncapi.yaml, from the .avsc files and the settings of topics (`make events` writes it too)
	$(BIN)/python -m tailrace.services.reference.asyncapi

.PHONY: limits
limits: .make/venv  ## docs/limits.md, from the constants in the code
	$(BIN)/python -m tailrace.services.reference.limits

.PHONY: acls
acls: .make/venv  ## docs/acls.md, from the rules of services/reference/acls.py
	$(BIN)/python -m tailrace.services.reference.acls_page

.PHONY: metrics
metrics: .make/venv  ## docs/metrics.md, from the table in services/metrics/table.py
	$(BIN)/python -m tailrace.services.reference.metrics

##@ To measure it

.PHONY: bench
bench: $(addprefix bench-,$(BENCHMARKS))  ## All benchmarks; each writes benchmarks/out/NAME.json

bench-%: setup  ## One benchmark, by name: make bench-replay
	@test -f benchmarks/$*.py || { echo "there is no benchmark '$*': there are $(BENCHMARKS)" >&2; exit 2; }
	$(BIN)/python benchmarks/$*.py

##@ Housekeeping

.PHONY: lock
lock: pyproject.toml .make/uv  ## requirements.lock anew, from the ranges in pyproject.toml
	env -u PIP_FIND_LINKS -u UV_FIND_LINKS .make/uv/bin/uv pip compile --quiet --upgrade --universal \
		--python-version 3.11 --extra dev --no-annotate --no-header --no-emit-index-url \
		--no-emit-find-links pyproject.toml --output-file requirements.lock

.PHONY: clean
clean:  ## Removes what was made here (downloaded jars stay in the user's cache)
	rm -rf .venv .links .make build dist $(WEB)/node_modules *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		benchmarks/out spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help:  ## This list
	@awk 'BEGIN { FS = ":.*  ## "; print "\ntailrace: make TARGET" } \
		/^##@/ { printf "\n  %s\n", substr($$0, 5) } \
		/^[a-z%-]+:.*  ## / { sub("%", "NAME", $$1); printf "    \033[36m%-14s\033[0m %s\n", $$1, $$2 } \
		END { print "" }' $(firstword $(MAKEFILE_LIST))

.PHONY: prerequisites
prerequisites:
	@command -v python3 >/dev/null || test -n "$(PYTHON)" || { echo "tailrace: Python 3.11 or newer is missing:\
	 install it with your package manager, e.g. apt-get install -y python3 python3-venv" >&2; exit 1; }
	@$(or $(PYTHON),python3) infra/prerequisites.py

# The link lets mypy see the checkout, whatever its folder is called, as the package `tailrace`.
.make/venv: requirements.lock pyproject.toml setup.py | prerequisites
	@echo "Installing the pinned packages into .venv (the first time this downloads 500 MB)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	mkdir -p .links/modules .make && ln -sfn .. .links/tailrace
	for each in benchmarks tests; do ln -sfn ../$$each .links/$$each; ln -sfn ../../$$each .links/modules/$$each; done
	@touch $@

# Looks each time, since the cache is not ours alone; a quarter of a second when all is there.
.PHONY: warm
warm: .make/venv
	@$(BIN)/python -m tailrace.infra.warm_up
	@$(BIN)/python -m tailrace.pipelines.runtime.spark.class_archive

.make/pyright: | .make/venv
	$(PYTHON) -m venv $@ && $@/bin/pip install --quiet basedpyright==1.40.2

.make/uv:
	$(PYTHON) -m venv $@ && $@/bin/pip install --quiet uv
