# Two commands do all the set-up on a fresh machine; Python 3.11 or newer and make are all they need.
#
#   make run         install into .venv and open coach            ARGS="launch baseline --wait" passes arguments
#   make test        install what the tests need, check, test     ARGS="-k launch" goes to pytest
#   make test-long   the tests that take minutes, and what they measured
#   make score       the diagnosis against the labelled logs in $COACH_LOG_CORPUS
#   make lint        format, lint, types, import contracts
#   make clean       remove .venv and everything else that was made
#
# EXTRAS=train or EXTRAS= overrides what `make run` installs beside the core; PYTHON=/path/to/python3 chooses the interpreter.

.ONESHELL:
.PHONY: run test test-long score lint clean
SHELL := /bin/sh
.SHELLFLAGS := -euc
MAKEFLAGS += --no-print-directory

VENV := .venv
SLURM_CONFS := /etc/slurm/slurm.conf /etc/slurm-llnl/slurm.conf

# On a cluster, the training environment is the site's own and a login node is no place to train: the core is enough.
# Elsewhere coach trains on this machine, so torch comes with it.
ifeq ($(origin EXTRAS),undefined)
HAS_SLURM := $(or $(shell command -v sbatch || command -v squeue),$(SLURM_CONF),$(wildcard $(SLURM_CONFS)))
EXTRAS := $(if $(HAS_SLURM),,train)
endif

comma := ,
with_commas = $(subst $(eval) ,$(comma),$(strip $(1)))

# $(call install,EXTRAS) makes .venv hold the project with these extras. Each part that is installed leaves a stamp, named by what
# it was installed from, so that the second time costs nothing.
define install
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
	if [ -z "$$python" ]; then
		found=$${found#, }
		echo "coach needs Python 3.11 or newer; found $${found:-none}; set PYTHON=/path/to/python3" >&2
		exit 1
	fi
	rm -rf $(VENV)
	"$$python" -m venv $(VENV)
fi
stamp=$(VENV)/.installed-$$({ pwd; cat pyproject.toml constraints.txt; } | cksum | cut -d' ' -f1)
for part in core $(1); do
	if [ ! -e "$$stamp-$$part" ]; then
		echo "installing coach$(if $(strip $(1)), and what it needs to $(strip $(2)),) into $(VENV) ..." >&2
		$(VENV)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt \
			-e ".$(if $(strip $(1)),[$(call with_commas,$(1))],)"
		for old in $(VENV)/.installed-*; do
			case "$$old" in "$$stamp"-*) ;; *) rm -f "$$old" ;; esac
		done
		for part in core $(1); do touch "$$stamp-$$part"; done
		break
	fi
done
endef

define lint
$(VENV)/bin/ruff format --check .
$(VENV)/bin/ruff check .
$(VENV)/bin/mypy
$(VENV)/bin/lint-imports
endef

run:
	@$(call install,$(EXTRAS),$(subst $(eval) , and ,$(strip $(EXTRAS))))
	exec $(VENV)/bin/python -m coach $(ARGS)

test:
	@$(call install,dev train,test)
	$(lint)
	$(VENV)/bin/pytest -n 3 --dist loadgroup $(ARGS)

test-long:
	@$(call install,dev train,test)
	$(VENV)/bin/pytest -m long -s --timeout=3600 $(ARGS)

score:
	@$(call install,dev,measure)
	$(VENV)/bin/python benchmarks/score_corpus.py

lint:
	@$(call install,dev,check itself)
	$(lint)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
