.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.headway
WIRE := $(addprefix src/headway/live/wire/,layout.py records.py header.py)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

$(STAMP): pyproject.toml CMakeLists.txt scripts/setup scripts/install-packages $(wildcard shim/*/* examples/*.* packaging/*) $(WIRE)
	scripts/setup $(PYTHON)
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Make .venv with headway in .venv/bin

DEMO_STAMP := .venv/.headway-demo
$(DEMO_STAMP): pyproject.toml CMakeLists.txt scripts/setup scripts/install-packages $(wildcard shim/*/* examples/*.* packaging/*)
	@[ -e $(STAMP) ] || scripts/setup $(PYTHON) demo
	@touch $@

.PHONY: demo
demo: $(DEMO_STAMP) ## A program beside five that flood the GPU, without and with Headway: simulated, then real
	@mkdir -p out
	@echo "First in virtual time: a game, a widget and five bombs on one GPU, without Headway and with it"
	@$(BIN)/headway compare examples/bombs.toml --plot out/demo.png
	@$(BIN)/headway sim examples/bombs.toml --variant "priorities and a reserve" --trace out/demo.pftrace
	@$(BIN)/headway check out/demo.pftrace
	@echo "picture: out/demo.png    trace for ui.perfetto.dev: out/demo.pftrace"
	@echo
	@echo "Now for real, about a minute: a program beside five that flood a GPU which one CPU plays"
	@$(BIN)/python scripts/live_demo.py out

.PHONY: lint
lint: setup ## Formatter, linters, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: test
test: lint ## All tests, after the linters
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not live and not gpu and not tables"
	$(BIN)/python -m pytest -m "live and not gpu" || { \
	  echo "Live tests compete with the machine for time: those that failed have one more attempt."; \
	  $(BIN)/python -m pytest -m "live and not gpu" --last-failed --last-failed-no-failures none; }

.PHONY: tables
tables: setup ## Tests of the tables and verdicts that benchmarks print
	$(BIN)/python -m pytest -m tables

.PHONY: bench
bench: setup ## Speed against SimPy, and memory over ten million groups
	$(BIN)/python benchmarks/simulator.py

.PHONY: twin
twin: setup ## The simulated GPU beside the measured one, in docs/twin.md (ten seconds)
	$(BIN)/python -m benchmarks.gpu.twin --write

.PHONY: twin-ordinary
twin-ordinary: setup ## The ordinary suite on the simulated GPU, all ways and goals (ten minutes)
	$(BIN)/python -m benchmarks.gpu.ordinary.twin

.PHONY: pairs
pairs: setup ## Random groups of CUDA programs on the simulated GPU: is every promise kept? (ten minutes)
	$(BIN)/python -m benchmarks.ordinary_pairs

.PHONY: bounds
bounds: setup ## Bounds against simulations of ten thousand random task sets of each kind (fifteen minutes)
	$(BIN)/python -m benchmarks.bounds

.PHONY: bench-live
bench-live: setup ## Protection, overhead, latency, deaths and fuzz of the live part (ten minutes)
	$(BIN)/python -m benchmarks.live_protection
	$(BIN)/python -m benchmarks.live_overhead
	$(BIN)/python -m benchmarks.daemon_latency
	$(BIN)/python -m benchmarks.daemon_scale
	$(BIN)/python -m benchmarks.tokens
	$(BIN)/python -m benchmarks.launch_cost
	$(BIN)/python -m benchmarks.steps_ahead
	$(BIN)/python -m benchmarks.share_changes
	$(BIN)/python -m benchmarks.kill_campaign
	$(BIN)/python -m benchmarks.kill_instants
	$(BIN)/python -m benchmarks.protocol_fuzz
	$(BIN)/python -m benchmarks.tracing
	$(BIN)/python -m benchmarks.start_up

.PHONY: bench-desktop
bench-desktop: setup ## Windows, window servers, video, a game, prediction and ticks (fifteen minutes)
	$(BIN)/python -m benchmarks.inheritance
	$(BIN)/python -m benchmarks.desktop_video
	$(BIN)/python -m benchmarks.desktop_ticks
	$(BIN)/python -m benchmarks.desktop_prediction
	$(BIN)/python -m benchmarks.prediction
	$(BIN)/python -m benchmarks.desktop_openarena

.PHONY: bench-fleet
bench-fleet: setup ## Job times, placements and deaths on a Ray cluster of this machine (ten minutes)
	$(BIN)/python -m benchmarks.fleet_jobs
	$(BIN)/python -m benchmarks.fleet_placements
	$(BIN)/python -m benchmarks.fleet_study

.PHONY: compat
compat: setup ## Programs from Debian with and without Headway: the table in docs/programs.md (ten minutes)
	scripts/install-packages compat $$($(BIN)/python -m benchmarks.compat --packages)
	$(BIN)/python -m benchmarks.compat --write

.PHONY: fuzz
fuzz: setup ## Readers of strangers' input, fed by coverage for long: make fuzz SECONDS=300
	for target in hello message page request duration spec scenario trace others survey; do \
	  $(BIN)/python -m tests.fuzz.run $$target --seconds $(or $(SECONDS),300) || exit 1; done

.PHONY: model
model: setup ## The page protocol in every order of its steps, with more jobs and messages than in the tests (minutes)
	mkdir -p out/model && cd out/model && for variant in "" "-DDEATHS" "-DDAEMON_DIES" "-DPIECES -DJOBS=1" \
	    "-DPIECES -DJOBS=1 -DDEATHS" "-DPIECES -DJOBS=1 -DDAEMON_DIES"; do \
	  spin -DSPINS=0 $$variant -a ../../tests/protocol/pages.pml && gcc -O2 -w -DSAFETY -DVECTORSZ=512 -DCOLLAPSE -o pan pan.c \
	    && ./pan -m2000000 -w26 | tee said && grep -q "errors: 0" said || exit 1; done

.PHONY: wheel
wheel: ## A wheel for Linux with glibc 2.28 or newer, and the sdist, in dist/
	scripts/wheel $(PYTHON)

.PHONY: docs
docs: setup ## The documents as a site, in out/site; every link is checked
	$(BIN)/python -m pip install --quiet --disable-pip-version-check mkdocs-material
	$(BIN)/python scripts/docs.py out/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file out/docs/mkdocs.yml --site-dir $(CURDIR)/out/site
	@echo "out/site/index.html"

.PHONY: mutate
mutate: setup ## Mistakes put into a copy, one at a time: does a test fail?
	scripts/mutate.py

.PHONY: kills
kills: setup ## Clients killed at random instants, and nobody may get stuck: make kills N=10000
	$(BIN)/python -m benchmarks.kill_instants --kills $(or $(N),10000)

.PHONY: clean
clean: ## Remove what was built
	rm -rf .venv out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
