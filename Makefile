# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: env demo reference chart release test test-real test-upgrade test-explore test-rollouts test-scenarios test-takeover test-e2e screenshots lint style types audit bench chaos train-all train-seeds evaluate-all wheels images lock clean

# Tests start processes by the hundred: where no bytecode is kept, each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.venv/.installed: requirements-dev.lock pyproject.toml lab/pyproject.toml twin/pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable . --editable twin --editable lab
	@touch $@

env: .venv/.installed

# What training and its tests need. A CPU build of torch is enough; where the default index would give one for GPUs:
# make test TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0
.venv/.learn: .venv/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	@touch $@

# The thesis' 105 pods at ten times the speed; the leader is killed half-way through their arrivals.
demo: .venv/.installed
	$(BIN)/conclave demo --kill leader@16

# docs/reference/*.md, from the code.
reference: .venv/.learn
	$(BIN)/python -m docs.reference.generate

# k8s/chart, from the base and components of the overlays; needs kubectl.
chart: .venv/.installed
	$(BIN)/python -m release.chart.generate

lint: style types

style: .venv/.learn
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.learn
	$(BIN)/mypy
	$(BIN)/lint-imports

# Known weaknesses in our code (bandit) and in what we install (pip-audit, which needs the network). 3: not audited.
audit: .venv/.installed
	$(BIN)/python -m bench.audit

# JOBS tests at a time: most of them wait for processes, leases and clocks. Who has none left takes some of another's.
# Types are judged beside them: mypy takes one core for more than a minute. What it says comes last, whichever failed.
JOBS ?= 3
test: style
	@said=$$(mktemp); trap 'kill $$types 2>/dev/null; rm -f "$$said"' EXIT; trap 'exit 130' INT TERM; \
	$(MAKE) --no-print-directory types >"$$said" 2>&1 & types=$$!; \
	$(BIN)/pytest -n $(JOBS) --dist worksteal; tests=$$?; \
	wait $$types; judged=$$?; types=; cat "$$said"; exit $$((tests ? tests : judged))

# Against a real kube-apiserver, kube-controller-manager and kube-scheduler (1.36) in the folder KUBERNETES_BINARIES.
test-real: .venv/.learn
	$(BIN)/pytest -m real tests/real

# A rolling upgrade: services of the last release (RELEASED, a commit) and of this tree in one mesh, in every mix.
RELEASED ?=
test-upgrade: .venv/.learn
	RELEASED=$(RELEASED) $(BIN)/pytest -m upgrade tests/process/test_upgrade.py

# On a real Docker engine, which it installs and starts where none answers (as root, on Debian), and in a real browser.
test-e2e: .venv/.learn wheels
	tests/e2e/run.sh $(BIN)/pytest -m e2e tests/e2e

# The pictures of the documentation, from a mesh on this machine.
screenshots: .venv/.installed
	$(BIN)/python -m bench.screenshots --out docs/images

# The black-box scenarios RUNS times in a row, with their waits as they are written; `make test` runs each once, shortened.
LENGTH ?= full
test-scenarios: .venv/.learn
	@for run in $$(seq $(RUNS)); do echo "scenarios, run $$run of $(RUNS)"; \
		SCENARIO_LENGTH=$(LENGTH) $(BIN)/pytest -q -n $(JOBS) --dist worksteal tests/scenarios || exit 1; done

# Generated inputs that `make test` has not seen; each run has others, and a failure says how to play it again.
test-explore: .venv/.learn
	$(BIN)/pytest -n $(JOBS) --hypothesis-profile explore $$(grep -rl --include='*.py' 'from hypothesis' tests --exclude=conftest.py)

# Live roll-outs of each learned policy with one agent a node as well, and sensors; `make test` has those of four agents.
test-rollouts: .venv/.learn
	ROLLOUTS=all $(BIN)/pytest tests/process/test_policies_live.py

# What a takeover asks for and reads beside so many pods that stand; `make test` has a few hundred.
STANDING_PODS ?= 100000
test-takeover: .venv/.learn
	STANDING_PODS=$(STANDING_PODS) $(BIN)/pytest tests/process/test_warm_standby.py

# Figures: medians of RUNS runs each, with the machine's load beside them. TRACES holds the openb trace.
RUNS ?= 5
TRACES ?= ../shared/data/openb
bench: .venv/.installed
	$(BIN)/python -m bench.parts.kernel
	$(BIN)/python -m bench.mesh --runs $(RUNS) --trace-dir $(TRACES)

# Random SIGKILLs of random services under load.
KILLS ?= 200
SEED ?= 1
chaos: .venv/.installed
	$(BIN)/python -m bench.chaos --kills $(KILLS) --seed $(SEED)

# Every shipped policy trained anew, one after the other, each with its run time. Goes on where it was interrupted.
POLICIES ?= ee lb el single-dqn marl-dqn marl-dqn-published frag
WORKERS ?= 2
train-all: .venv/.learn
	@for policy in $(POLICIES); do \
		again=$$(ls training/$$policy/*.ckpt >/dev/null 2>&1 && echo --resume); \
		case $$policy in ee|lb|el) seeds="--seeds 1000-1002";; *) seeds=;; esac; \
		nice -n 10 $(BIN)/conclave train $$policy $$seeds --out training/$$policy --workers $(WORKERS) $$again || exit $$?; \
	done

# The same with other training seeds, measured on the test seeds: the tables of docs/policies, an hour on a quiet core.
TRAINING_SEEDS ?= 1003-1006
train-seeds: .venv/.learn
	nice -n 10 $(BIN)/python -m bench.training_seeds --seeds $(TRAINING_SEEDS)

# The figures of the shipped weights, with a report each: by one decider, or by a mesh of AGENTS (a number, per-node).
SUITES ?= thesis deepsets openb
AGENTS ?=
evaluate-all: .venv/.installed
	@mkdir -p evaluation
	@for suite in $(SUITES); do \
		$(BIN)/conclave evaluate --suite $$suite $(AGENTS:%=--agents %) --json evaluation/$$suite.json --html evaluation/$$suite.html || exit $$?; \
	done

# Images are built from wheels, so that the build itself needs no network. One image per service; torch for the learner.
BASE ?= python:3.11-slim-bookworm
TAG ?= 0.1.0
IMAGES ?= agent coordinator binder sensor autoscaler jobs rebalancer twin cli etcd learner
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# What is fetched, again only when a lock changes; our own wheels every time, one per house.
dist/.fetched/%: images/%.lock | .venv/.installed
	@mkdir -p dist/.fetched
	$(BIN)/pip wheel --quiet --require-hashes --no-deps -r images/$*.lock -w dist/wheels
	@touch $@

dist/.fetched/torch: images/torch.lock | .venv/.installed
	@mkdir -p dist/.fetched
	$(BIN)/pip wheel --quiet --require-hashes --no-deps --extra-index-url $(TORCH_INDEX) -r images/torch.lock -w dist/torch
	@touch $@

wheels: $(IMAGES:%=dist/.fetched/%) $(if $(filter learner,$(IMAGES)),dist/.fetched/torch)
	@rm -rf dist/conclave build lab/build twin/build
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) $(BIN)/pip wheel --quiet --no-deps . ./twin ./lab -w dist/conclave

images: wheels
	@for image in $(IMAGES); do \
		docker build --target $$image --build-arg BASE=$(BASE) -t conclave-$$image:$(TAG) . || exit $$?; done

# What comes with a release, without network: dist/release, and in it publish.sh, which is printed. RELEASE: see --help.
release: .venv/.installed
	$(BIN)/python -m release $(RELEASE)

lock:
	$(BIN)/uv pip compile --quiet --no-header pyproject.toml --extra demo --generate-hashes -o requirements.lock
	$(BIN)/uv pip compile --quiet --no-header pyproject.toml --extra demo --extra dev --generate-hashes -o requirements-dev.lock
	@for image in agent coordinator binder sensor autoscaler jobs rebalancer twin cli etcd learner; do \
		$(BIN)/uv pip compile --quiet --no-header images/$$image.in -c requirements.lock --allow-unsafe \
			--generate-hashes -o images/$$image.lock || exit $$?; done

clean:
	rm -rf .venv build lab/build twin/build dist *.egg-info
