# `make` installs what is locked in envs/ into .venv and measures this machine. `make help` lists the rest.

# Not even a file of the checkout's own root, numpy.py say, comes before the installed packages.
python = .venv/bin/python -P

# These reach the recipes, most of them through the environment. A tool adds its own.
variables = AGAIN ARCHIVE ARGS CELL CUDA PYTHON python
.DEFAULT_GOAL := run
include $(wildcard tools/*/tool.mk)

# Another name may be meant for CUDA, or be mistyped.
given = $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
unknown := $(filter-out $(variables),$(given))
$(if $(unknown),$(warning no variable of this Makefile: $(unknown); known: $(sort $(variables))))

# These would lead Python elsewhere. The last, which many container images set, makes each job compile the library.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

# Snakemake, CuPy and Matplotlib cache below the home; if it cannot be written, here.
cache = "$${XDG_CACHE_HOME:-$$HOME/.cache}"
ifneq ($(shell mkdir -p $(cache) 2> /dev/null && test -w $(cache) && test -w "$$HOME" && echo written),written)
export XDG_CACHE_HOME := $(CURDIR)/.snakemake/caches
export CUPY_CACHE_DIR := $(XDG_CACHE_HOME)/cupy
export MPLCONFIGDIR := $(XDG_CACHE_HOME)/matplotlib
endif

# A measurement needs the machine for itself.
.NOTPARALLEL:

.PHONY: run plan cell archive verify setup setup-any setup-development test lint lock help

# With exec, since run.py ends when make does, and not when a shell between them does.
run: setup ## measure what is missing or stale, and print the summary (AGAIN=1: re-measure disturbed records; ARGS="..." go to snakemake)
	@exec $(python) workflow/commands/run.py $(if $(filter-out 0 no off false,$(AGAIN)),--again) $(ARGS)

plan: setup ## install what is missing, and say what `make` would measure, and why
	@$(python) workflow/commands/run.py --dry-run $(if $(filter-out 0 no off false,$(AGAIN)),--again) $(ARGS)

cell: setup ## measure one record with what it needs and is missing, and print its line (CELL=cpu/peak_flops/fp32)
	@exec $(python) workflow/commands/run.py --cell "$$CELL" $(ARGS)

archive: setup-any ## pack the results into results/archive/ (ARGS as the run had them)
	@$(python) workflow/commands/archive.py $(ARGS)

verify: setup-any ## check an archive against its manifest, and redraw it into results/rendered/ (the newest, or ARCHIVE=FILE)
	@$(python) workflow/commands/verify.py $(if $(ARCHIVE),"$$ARCHIVE")

setup: ## install only (CUDA=12, 13 or none chooses the packages, PYTHON=python3.13 the Python)
	@envs/install.sh

setup-any:
	@envs/install.sh any

setup-development:
	@envs/install.sh development

# One process more than cores, at most 8, since some tests wait; measurements within them take turns. GPU tests run one
# by one, because they share the card.
test: setup-development ## run the tests (ARGS="-m gpu": those that need a GPU)
	@$(python) -m pytest $(if $(findstring -m gpu,$(ARGS)),,--numprocesses=$(shell n=$$(nproc); echo $$((n < 8 ? n + 1 : 8))) --dist=worksteal) $(ARGS)

lint: setup-development ## check style and mistakes, Snakefile included
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@PATH="$(CURDIR)/.venv/bin:$(PATH)" snakefmt --check Snakefile workflow/rules/*.smk $(wildcard tools/*/Snakefile)
	@$(python) -m snakemake --lint

lock: ## lock newer versions of the packages (ARGS=--upgrade; needs uv)
	@envs/update $(ARGS)

help: ## this list
	@sed -ns 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12
