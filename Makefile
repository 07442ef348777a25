# Two commands do all the set-up on a fresh machine; make, and Python 3.11 or newer or uv, are all they need.
#
#   make run         install into .venv and open coach            ARGS="launch baseline --wait" passes arguments
#   make quick       the tests of the files that are changed         FILES="coach/…" or BASE=COMMIT says which
#   make test        install what the tests need, test            ARGS="-k launch" goes to pytest
#   make test-real   the other tests with a real Slurm, terminal, training or installation
#   make test-long   the tests that take minutes, and what they measured
#   make score       the diagnosis against the labelled logs in $COACH_LOG_CORPUS
#   make figures     the short benchmarks, one after the other       ARGS="--only echo --write FILE"
#   make site        install for everybody on a cluster    PREFIX=/shared/apps/coach (docs/site/install.md)
#   make single      all of coach in one file, coach.pyz     PYTHONS="python3.11 python3.12" says for which versions
#   make docs        the pages as HTML, in build/docs
#   make lint        format, lint, types, import contracts; `.venv/bin/ruff format .` corrects the format
#   make new-rule    a rule that works, with its tests: CODE=ENV NAME=my_cause
#                    also new-recipe (FROM=baseline names its parent), new-screen, new-command: NAME=my_name
#   make wheelhouse  collect all wheels in ./wheelhouse, for a site without internet: `make run` there takes them from it
#   make help        these lines
#   make clean       remove .venv and what else was made; not ./wheelhouse, which cannot be made again everywhere
#
# EXTRAS=train or EXTRAS= overrides what `make run` installs beside the core (about 66 MB);
# PYTHON=/path/to/python3 chooses the interpreter, VENV=DIR the place, and WHEELHOUSE=DIR, or WHEELHOUSE= for
# the network, where the wheels come from.

.ONESHELL:
.PHONY: run help quick test test-real test-long score figures site single docs lint wheelhouse clean
.PHONY: new-rule new-recipe new-screen new-command
SHELL := /bin/sh
.SHELLFLAGS := -euc
MAKEFLAGS += --no-print-directory

VENV := .venv
SLURM_CONFS := /etc/slurm/slurm.conf /etc/slurm-llnl/slurm.conf

# On a cluster, the training environment is the site's own and a login node is no place to train: the core is enough.
# Elsewhere coach trains on this machine, so torch comes with it.
HAS_SLURM := $(or $(shell command -v sbatch || command -v squeue),$(SLURM_CONF),$(wildcard $(SLURM_CONFS)))
# A wheelhouse is made here for a cluster elsewhere: torch goes into it only when asked for.
WHEELHOUSE_EXTRAS := $(if $(filter undefined,$(origin EXTRAS)),,$(EXTRAS))
ifeq ($(origin EXTRAS),undefined)
EXTRAS := $(if $(HAS_SLURM),,train)
endif
ifeq ($(origin WHEELHOUSE),undefined)
run site single: WHEELHOUSE := $(wildcard wheelhouse)
endif

comma := ,
with_commas = $(subst $(eval) ,$(comma),$(strip $(1)))

# $(call pip_options,EXTRAS): where the wheels come from; on a cluster no copy of the core's is kept in a home with a quota.
pip_options = $(if $(WHEELHOUSE),--no-index --find-links $(WHEELHOUSE)) $(if $(HAS_SLURM),$(if $(strip $(1)),,--no-cache-dir))

# A .venv that works, from the newest interpreter on the PATH that can make one, else from uv, which brings its own. What was made here
# is taken away again when anything after it fails or is interrupted, until `keep_venv`.
define make_venv
keep_venv() { trap - EXIT HUP INT TERM; }
if ! $(VENV)/bin/python -c '' 2>/dev/null; then
	python=
	found=
	for candidate in $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3); do
		version=$$("$$candidate" -c 'import platform; print(platform.python_version())' 2>/dev/null) || continue
		if ! "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
			found="$$found, $$version"
		elif ! "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
			found="$$found, $$version without venv and ensurepip (Debian, Ubuntu: apt install python3-venv)"
		else
			python=$$candidate
			break
		fi
	done
	trap 'rm -rf $(VENV)' EXIT
	trap 'exit 130' HUP INT TERM
	rm -rf $(VENV)
	if [ -n "$$python" ]; then
		"$$python" -m venv $(VENV)
	elif [ -n "$(PYTHON)" ] || ! command -v uv >/dev/null 2>&1; then
		uv=
	elif ! uv venv -q --seed --python '>=3.11' $(if $(WHEELHOUSE),--no-index --find-links $(WHEELHOUSE)) $(VENV) 2>/dev/null; then
		uv=
		found="$$found, uv without any"
	fi
	if [ ! -e $(VENV)/bin/python ]; then
		found=$${found#, }
		echo "coach needs Python 3.11 or newer; found $${found:-none}; ways out: PYTHON=/path/to/python3, a newer python3" \
			"on the PATH (module load python), or uv, which brings one" >&2
		exit 1
	fi
fi
endef

# $(call install,EXTRAS,WORDS) makes .venv hold the project with these extras. Each part that is installed leaves a stamp, named by
# what it was installed from, so that the second time costs nothing. Somebody else's .venv is used as it is.
define install
$(make_venv)
stamp=$(VENV)/.installed-$$({ pwd -P; cat pyproject.toml constraints.txt; } | cksum | cut -d' ' -f1)
for part in core $(1); do
	if [ -e "$$stamp-$$part" ]; then
		continue
	elif [ ! -w $(VENV) ]; then
		if [ -e "$$stamp-core" ]; then continue; fi
		echo "$(VENV) does not fit this checkout and is not yours: ask its owner to run make, or make your own with VENV=DIR" >&2
		exit 1
	fi
	echo "installing coach$(if $(strip $(1)), and what it needs to $(strip $(2)),) into $(VENV) ..." >&2
	if ! $(VENV)/bin/python -m pip install -qq --disable-pip-version-check $(call pip_options,$(1)) -c constraints.txt \
		-e ".$(if $(strip $(1)),[$(call with_commas,$(1))],)"; then
		if [ -n "$(WHEELHOUSE)" ]; then
			echo "$(WHEELHOUSE) does not have it all: it needs EXTRAS='$(strip $(1))' and this version of Python" \
				"where it is made; or take WHEELHOUSE= for the network" >&2
		fi
		exit 1
	fi
	for old in $(VENV)/.installed-*; do
		case "$$old" in "$$stamp"-*) ;; *) rm -f "$$old" ;; esac
	done
	for part in core $(1); do touch "$$stamp-$$part"; done
	break
done
keep_venv
endef

run:
	@$(call install,$(EXTRAS),$(subst $(eval) , and ,$(strip $(EXTRAS))))
	exec $(VENV)/bin/python -m coach $(ARGS)

# Six processes: each begins with a group that waits for a cluster, terminals or trainings.
test:
	@$(call install,dev train frameworks language kernels,test)
	exec $(VENV)/bin/pytest -n 6 --dist loadgroup $(ARGS)

test-real:
	@$(call install,dev train frameworks language kernels,test)
	exec $(VENV)/bin/pytest -m "real and not story and not long and not gpu" -n 6 --dist loadgroup $(ARGS)

test-long:
	@$(call install,dev train frameworks language kernels proof,test)
	$(VENV)/bin/pytest -m long -s --timeout=3600 $(ARGS)

score:
	@$(call install,dev,measure)
	$(VENV)/bin/python benchmarks/score_corpus.py

figures:
	@$(call install,dev train frameworks language kernels,measure)
	$(VENV)/bin/python benchmarks/figures.py $(ARGS)

# The tools that write completions and the man page stay in .venv: the tree that people use has the core alone.
site:
	@if [ -z "$(PREFIX)" ]; then echo "where to? make site PREFIX=/shared/apps/coach" >&2; exit 2; fi
	$(call install,site,write its completions and man page)
	PYTHONPATH=$(CURDIR) exec $(VENV)/bin/python site/install.py --prefix "$(PREFIX)" $(if $(PYTHON),--python "$(PYTHON)") \
		$(if $(WHEELHOUSE),--wheelhouse "$(WHEELHOUSE)") $(if $(PRIVATE),--private)

# What .venv holds goes into the file: no network is needed once it is there.
single:
	@$(call install,,)
	exec $(VENV)/bin/python single/build.py $(PYTHONS)

docs:
	@$(call install,docs,build its pages)
	$(VENV)/bin/python docs/make_pages.py
	exec $(VENV)/bin/python -m sphinx -q -W --keep-going -b html -c docs . build/docs

lint:
	@$(call install,dev,check itself)
	wrong=0
	$(VENV)/bin/ruff format --check . || wrong=1
	$(VENV)/bin/ruff check . || wrong=1
	$(VENV)/bin/mypy || wrong=1
	$(VENV)/bin/lint-imports || wrong=1
	if [ $$wrong != 0 ]; then exit 1; fi

help:
	@sed -n '/^#   /s/^#   //p; /^SHELL/q' Makefile

# What waits for a cluster, a terminal or a training is left out: `make test` runs it.
quick:
	@$(call install,dev,test)
	exec $(VENV)/bin/python -m tests.house.quick --base "$(BASE)" --files $(FILES) -- $(ARGS)

new-rule new-recipe new-screen new-command:
	@$(call install,dev,check itself)
	exec $(VENV)/bin/python -m tests.house.new $(@:new-%=%) --code "$(CODE)" --name "$(NAME)" --from "$(FROM)"

# The build back end is among them because installing from a checkout needs it.
wheelhouse:
	@$(call install,,)
	rm -rf wheelhouse.new
	trap 'rm -rf wheelhouse.new' EXIT
	trap 'exit 130' HUP INT TERM
	echo "collecting wheels$(if $(strip $(WHEELHOUSE_EXTRAS)), for coach and to $(subst $(eval) , and ,$(strip $(WHEELHOUSE_EXTRAS))),) ..." >&2
	$(VENV)/bin/python -m pip wheel -qq --disable-pip-version-check -c constraints.txt -w wheelhouse.new \
		".$(if $(strip $(WHEELHOUSE_EXTRAS)),[$(call with_commas,$(WHEELHOUSE_EXTRAS))],)" pip hatchling editables
	rm -rf wheelhouse
	mv wheelhouse.new wheelhouse
	trap - EXIT HUP INT TERM
	echo "copy this checkout with its ./wheelhouse to the site: \`make run\` there needs no network" >&2

clean:
	rm -rf $(VENV) coach.pyz build docs/made dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
