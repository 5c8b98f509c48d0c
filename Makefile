# Everything a contributor types. Each target sets up what it needs; nothing is installed outside this folder.
PY := .venv/bin/python
WORKERS := $(shell expr 3 \* `nproc`)# tests wait more than they compute
export PYTHONDONTWRITEBYTECODE :=

.PHONY: all demo test long check site dist pyz deb lock audit node e2e bench proto clean
export K8S ?= 1.36
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)# what is built is as old as its source

all: check test             ## what CI does

demo: .venv/.run            ## the main job on this machine's devices: make demo ARGS=--watch
	$(PY) -m nodeplug demo $(ARGS)

test: .venv/.collected .venv-proto/.done  ## the whole test suite: make test ARGS="-k name"
	$(PY) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

long: .venv/.dev            ## every property with thousands of examples, other ones each time: make long ARGS="-k name"
	$(PY) -m pytest -n $(WORKERS) --dist worksteal --hypothesis-profile=long -o timeout=3600 -m hypothesis $(ARGS)

check: .venv/.dev site      ## lint, types, import contracts, the documentation
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

site: .venv/.docs           ## the documentation as a site in build/site; what is not right on a page fails it
	.venv/bin/sphinx-build -M html docs build/sphinx --fail-on-warning --keep-going --fresh-env -q
	rm -rf build/site && mv build/sphinx/html build/site

dist: .venv/.dev            ## what is installed: wheels, sdist, pyz, images, Debian packages, manifest, checksums; no container engine
	rm -rf dist
	$(PY) -m hatchling build -d dist
	cd nodeplug-pytest && ../$(PY) -m hatchling build -t wheel -d ../dist
	$(PY) -m deploy.pyz dist/nodeplug-*.whl dist/nodeplug-$$($(PY) -m hatchling version).pyz
	set -e; version=$$($(PY) -m hatchling version); for arch in amd64 arm64; do \
	  $(PY) -m deploy.image dist/nodeplug-*.whl dist/nodeplug-$$version-$$arch.oci.tar --architecture $$arch; \
	  $(PY) -m deploy.debian_package dist/nodeplug-*.whl dist --architecture $$arch; done
	cp deploy/daemonset.yaml dist/
	cd dist && sha256sum * > SHA256SUMS

pyz: .venv/.dev             ## the program as one file, dist/nodeplug-VERSION.pyz, alone
	rm -f dist/nodeplug-*.whl
	$(PY) -m hatchling build -t wheel -d dist
	$(PY) -m deploy.pyz dist/nodeplug-*.whl dist/nodeplug-$$($(PY) -m hatchling version).pyz

deb: .venv/.dev             ## the Debian package of this machine alone, in dist/
	rm -f dist/nodeplug_*.deb dist/nodeplug-*.whl
	$(PY) -m hatchling build -t wheel -d dist
	$(PY) -m deploy.debian_package dist/nodeplug-*.whl dist --architecture `dpkg --print-architecture`

lock: .venv/.dev            ## pin the newest that goes into the images (Debian 12, apt)
	$(PY) -m deploy.image.lock

audit: .venv/.dev .venv-audit/.done ## known weaknesses and licences of what is shipped, as far as the network tells
	$(PY) -m deploy.audit .venv-audit/bin/pip-audit

node:                       ## build a real Kubernetes node, which takes 10 minutes once: make node K8S=1.37 (root, Go)
	tests/e2e/node/build.sh

e2e: .venv/.dev             ## scenarios on that node: make e2e K8S=1.37 (root)
	$(PY) -m pytest tests/e2e -m e2e -o timeout=600 $(ARGS)

# What is measured is compiled as the image's files are (deploy/image), in a folder of its own.
bench: export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode
bench: .venv-bench/.done    ## what has a goal, beside its anchors (10 minutes); make bench ARGS=page: docs/benchmarks.md
	.venv-bench/bin/python -X no_debug_ranges -m compileall -q -j 0 -x '/(build|tests|\.venv(-proto|-audit)?)/' \
	  `/usr/bin/python3 -c 'import os; print(os.path.dirname(os.__file__))'` .venv-bench/lib .
	.venv-bench/bin/python -m bench $(ARGS)

proto: .venv-proto/.done    ## regenerate kubeletapi/ from proto/
	.venv-proto/bin/python proto/generate.py

.venv/.run: pyproject.toml .ci/venv
	sh .ci/venv .venv
	$(PY) -m pip install -q --disable-pip-version-check -e '.[controlplane]'
	touch $@

.venv/.dev: .venv/.run
	$(PY) -m pip install -q --disable-pip-version-check --group dev
	touch $@

.venv/.docs: .venv/.run
	$(PY) -m pip install -q --disable-pip-version-check --group docs
	touch $@

# What is measured is what runs on nodes: the image and the Debian package have Debian's Python, a quarter faster than one
# that was built without profiles.
.venv-bench/.done: .venv/.dev
	/usr/bin/python3 -m venv --without-pip --clear .venv-bench
	$(PY) -m pip --python .venv-bench/bin/python install -q --disable-pip-version-check -e '.[controlplane]' --group dev
	touch $@

# The tests' modules are compiled once, rather than by every worker of the first run: a third of a minute of two cores.
.venv/.collected: .venv/.dev
	$(PY) -m pytest --collect-only -q >/dev/null || true # the run itself says what is wrong with one
	touch $@

# The generator is old on purpose: what it writes loads with every protobuf since 4.25 (see proto/generate.py).
.venv-proto/.done: .ci/venv proto/requirements.txt
	sh .ci/venv .venv-proto
	.venv-proto/bin/python -m pip install -q --disable-pip-version-check --only-binary :all: -r proto/requirements.txt \
	  || echo "no generator for this Python: the freshness test of kubeletapi/ will be skipped"
	touch $@

.venv-audit/.done: .ci/venv
	sh .ci/venv .venv-audit
	.venv-audit/bin/python -m pip install -q --disable-pip-version-check pip-audit
	touch $@

clean:
	rm -rf .venv .venv-proto .venv-audit .venv-bench build dist bench/results
