# The commands for contributors. Each target installs what it needs; nothing is installed outside this folder.
PY := .venv/bin/python
WORKERS := $(shell expr 3 \* `nproc`)# tests wait more than they compute
export PYTHONDONTWRITEBYTECODE :=

.PHONY: all help demo test long check site dist pyz deb lock audit node e2e bench proto clean
export K8S ?= 1.36
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)# builds have the time of their source

all: check test             ## what CI does

help:                       ## list the targets
	@sed -n 's/^\([a-z0-9]*\):[^#]*## \(.*\)/\1	\2/p' Makefile | expand -t 10

demo: .venv/.run            ## demonstrate nodeplug with this machine's devices: make demo ARGS=--watch
	$(PY) -m nodeplug demo $(ARGS)

test: .venv/.collected .venv-proto/.done  ## the whole test suite: make test ARGS="-k name"
	$(PY) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

long: .venv/.dev            ## every property with thousands of examples, new ones in each run: make long ARGS="-k name"
	$(PY) -m pytest -n $(WORKERS) --dist worksteal --hypothesis-profile=long -o timeout=3600 -m hypothesis $(ARGS)

check: .venv/.dev site      ## lint, types, import contracts, the documentation
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

site: .venv/.docs           ## the documentation as a site in build/site; fails on any warning about a page
	.venv/bin/sphinx-build -M html docs build/sphinx --fail-on-warning --keep-going --fresh-env -q
	rm -rf build/site && mv build/sphinx/html build/site

dist: .venv/.dev            ## what users install: wheels, sdist, pyz, images, Debian packages, manifest, checksums; no container engine
	rm -rf dist
	$(PY) -m hatchling build -d dist
	cd nodeplug-pytest && ../$(PY) -m hatchling build -t wheel -d ../dist
	$(PY) -m deploy.pyz dist/nodeplug-*.whl dist/nodeplug-$$($(PY) -m hatchling version).pyz
	set -e; version=$$($(PY) -m hatchling version); for arch in amd64 arm64; do \
	  $(PY) -m deploy.image dist/nodeplug-*.whl dist/nodeplug-$$version-$$arch.oci.tar --architecture $$arch; \
	  $(PY) -m deploy.debian_package dist/nodeplug-*.whl dist --architecture $$arch; done
	cp deploy/daemonset.yaml dist/
	cd dist && sha256sum * > SHA256SUMS

pyz: .venv/.dev             ## only the program as one file, dist/nodeplug-VERSION.pyz
	rm -f dist/nodeplug-*.whl
	$(PY) -m hatchling build -t wheel -d dist
	$(PY) -m deploy.pyz dist/nodeplug-*.whl dist/nodeplug-$$($(PY) -m hatchling version).pyz

deb: .venv/.dev             ## only the Debian package for this machine, in dist/
	rm -f dist/nodeplug_*.deb dist/nodeplug-*.whl
	$(PY) -m hatchling build -t wheel -d dist
	$(PY) -m deploy.debian_package dist/nodeplug-*.whl dist --architecture `dpkg --print-architecture`

lock: .venv/.dev            ## pin the newest packages for the images (Debian 12, apt)
	$(PY) -m deploy.image.lock

audit: .venv/.dev .venv-audit/.done ## known vulnerabilities and licences of shipped packages (needs the network)
	$(PY) -m deploy.audit .venv-audit/bin/pip-audit

node:                       ## build a real Kubernetes node, which takes 10 minutes once: make node K8S=1.37 (root, Go)
	tests/e2e/node/build.sh

e2e: .venv/.dev             ## scenarios on that node: make e2e K8S=1.37 (root)
	$(PY) -m pytest tests/e2e -m e2e -o timeout=600 $(ARGS)

# The measured program is compiled like the image's files (deploy/image), in a separate folder.
bench: export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode
bench: .venv-bench/.done    ## measurements with goals, beside their references (10 minutes); ARGS=page: docs/benchmarks.md
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

# Measurements use the Python that runs on nodes: the image and the Debian package have Debian's, which is a quarter
# faster than one that was built without profiles.
.venv-bench/.done: .venv/.dev
	/usr/bin/python3 -m venv --without-pip --clear .venv-bench
	$(PY) -m pip --python .venv-bench/bin/python install -q --disable-pip-version-check -e '.[controlplane]' --group dev
	touch $@

# Compile the tests' modules once, not in every worker of the first run: this saves 20 seconds of two cores.
.venv/.collected: .venv/.dev
	$(PY) -m pytest --collect-only -q >/dev/null || true # the test run reports errors in modules
	touch $@

# The generator is deliberately old: its output loads with every protobuf since 4.25 (see proto/generate.py).
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
