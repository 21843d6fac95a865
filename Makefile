# `make` installs what is locked in envs/ into .venv and measures this machine. `make help` lists the rest.

# Not even a file of the checkout's own root, numpy.py say, comes before the installed packages.
python = .venv/bin/python -P

# These reach the recipes, most of them through the environment. Another name may be meant for CUDA, or be mistyped.
variables = A ARCHIVE ARCHIVES ARGS B BATCH CACHE CARD CELL CONTEXT CUDA DEVICES FLEET FORCE FORMAT HEAT MODEL PYTHON \
	PYTORCH REPORT RUN RUNS python
given = $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
unknown := $(filter-out $(variables),$(given))
$(if $(unknown),$(warning no variable of this Makefile: $(unknown); known: $(variables)))

# These would lead Python elsewhere. Only `peers`, which runs the user's Python, passes PYTHONPATH on.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

# Snakemake, CuPy and Matplotlib cache below the home; where that cannot be written, here.
cache = "$${XDG_CACHE_HOME:-$$HOME/.cache}"
ifneq ($(shell mkdir -p $(cache) 2> /dev/null && test -w $(cache) && echo written),written)
export XDG_CACHE_HOME := $(CURDIR)/.snakemake/caches
export CUPY_CACHE_DIR := $(XDG_CACHE_HOME)/cupy
export MPLCONFIGDIR := $(XDG_CACHE_HOME)/matplotlib
endif

# A measurement needs the machine for itself.
.NOTPARALLEL:

.PHONY: run dry-run cell health report archive crate records bundle verify audit render compare place export model spread \
	distribution fleet fleet-report peers setup setup-any setup-fleet setup-reports setup-development test lint \
	lock clean-env help

run: setup ## measure what is missing or stale, and print the summary (ARGS="..." go to snakemake)
	@$(python) workflow/commands/run.py $(ARGS)

dry-run: setup ## say what `make` would measure, and why
	@$(python) workflow/commands/run.py --dry-run $(ARGS)

cell: setup ## measure one record in cell/, beside its prediction and the card's reference (CELL=cpu/peak_flops/fp32)
	@$(python) workflow/commands/cell.py "$$CELL" $(ARGS)

health: setup ## say in a minute whether each GPU is what was rented (DEVICES="gpu0 gpu3": these alone; HEAT=60: seconds of load)
	@$(python) workflow/commands/health.py $(if $(DEVICES),--devices $(DEVICES)) $(if $(HEAT),--heat "$$HEAT") $(ARGS)

report: setup-any ## write results/snakemake_report.html, Snakemake's own report, which embeds report.html
	@$(python) -m snakemake --cores 1 --report results/snakemake_report.html $(ARGS)

archive: setup-any ## pack the results into results/archive/ (ARGS as the run had them)
	@$(python) workflow/commands/archive.py $(ARGS)

crate: setup-any ## make a run crate of an archive, a zip for WorkflowHub and Zenodo (the newest, or ARCHIVE=FILE)
	@$(python) workflow/commands/crate.py $(if $(ARCHIVE),"$$ARCHIVE")

records: setup-any ## pack the records that comparisons read into results/records/, 1 MB at most (of the results, or ARCHIVE=FILE)
	@$(python) workflow/commands/records.py $(if $(ARCHIVE),"$$ARCHIVE",results)

# It needs no CUDA packages installed.
bundle: ## pack packages and checkout into bundle/, one file for machines without a network (CUDA=12, 13 or none)
	@CUDA= envs/install.sh any
	@$(python) workflow/commands/bundle.py "$${CUDA:-12}"

verify: setup-any ## check an archive against its manifest (the newest, or ARCHIVE=FILE)
	@$(python) workflow/commands/verify.py $(if $(ARCHIVE),"$$ARCHIVE")

audit: setup-any ## recompute a run from its raw samples by code of its own (the results, or RUN=FOLDER or FILE)
	@$(python) workflow/commands/audit.py $(if $(RUN),"$$RUN")

render: setup-any ## redraw and redescribe an archive's results, without measuring (the newest, or ARCHIVE=FILE)
	@$(python) workflow/commands/render.py $(if $(ARCHIVE),"$$ARCHIVE")

compare: $(if $(RUN),setup,setup-any) ## compare A=one.tar.gz B=other.tar.gz (lists too; FORCE=1: other models of card), or measure RUN=other-checkout beside this one
	@$(python) workflow/commands/compare.py $(if $(RUN),--run "$$RUN" $(ARGS),"$$A" "$$B" $(if $(filter-out 0 no off false,$(FORCE)),--force))

model: setup-any ## what decoding a model costs at least: MODEL=llama-3-70b CARD=reference/nvidia-h200 (BATCH=1,8 CONTEXT=1024 CACHE=fp8)
	@$(python) workflow/commands/model.py "$$MODEL" $(if $(CARD),--card "$$CARD") $(if $(BATCH),--batch "$$BATCH") \
		$(if $(CONTEXT),--context "$$CONTEXT") $(if $(CACHE),--cache "$$CACHE")

fleet: setup-fleet ## measure every node of a Slurm cluster by a job of its own, and compare the cards (config/fleet.yaml; FLEET=fleet: the folder)
	@$(python) workflow/commands/fleet.py $(if $(FLEET),--folder "$$FLEET") $(ARGS)

fleet-report: setup-any ## which cards of a fleet are slow (ARCHIVES="n1.tar.gz n2.tar.gz", or FLEET=folder with nodes.json)
	@$(python) workflow/commands/fleet_report.py $(if $(ARCHIVES),$(ARCHIVES) $(if $(FLEET),--into "$$FLEET"),$(if $(FLEET),--nodes "$$FLEET/nodes.json"))

place: setup-reports ## a program's kernels under measured ceilings: REPORT=my.ncu-rep (CARD=reference/nvidia-h200); without it, how to collect it
	@$(python) workflow/commands/place.py $(if $(REPORT),"$$REPORT") $(if $(CARD),--card "$$CARD")

export: setup-any ## write the measured ceilings for another tool: FORMAT=tracelens (CARD=reference/nvidia-h200)
	@$(python) workflow/commands/export.py "$$FORMAT" $(if $(CARD),--card "$$CARD")

spread: setup ## measure the ceilings in RUNS=3 more runs, and report how far they lie apart (ARGS as the run had them)
	@$(python) workflow/commands/spread.py $(if $(RUNS),"$$RUNS",3) $(ARGS)

distribution: setup-any ## add runs to what is known of their cards' models (ARCHIVES="one.tar.gz other.tar.gz")
	@$(python) workflow/commands/distribution.py $(ARCHIVES)

peers: private export PYTHONPATH := $(PYTHONPATH)
peers: setup-any ## time PyTorch beside this run's ceilings and operators (PYTORCH=a Python with it; for operators also with CuPy)
	@$(if $(PYTORCH),"$$PYTORCH",python3) workflow/commands/peers.py

setup: ## install only (CUDA=12, 13 or none chooses the packages, PYTHON=python3.13 the Python)
	@envs/install.sh

setup-any:
	@envs/install.sh any

setup-fleet:
	@envs/install.sh fleet

setup-reports:
	@envs/install.sh reports

setup-development:
	@envs/install.sh development

# On all cores; measurements within the tests take turns. GPU tests run one by one, because they share the card.
test: setup-development setup-fleet ## run the tests (ARGS="-m gpu": those that need a GPU)
	@$(python) -m pytest $(if $(findstring -m gpu,$(ARGS)),,--numprocesses=auto --maxprocesses=8 --dist=worksteal) $(ARGS)

lint: setup-development ## check style and mistakes, Snakefile included
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/snakefmt --check Snakefile workflow/Snakefile workflow/rules/*.smk workflow/fleet/Snakefile
	@$(python) -m snakemake --lint

lock: ## lock newer versions of the packages (ARGS=--upgrade; needs uv)
	@envs/update $(ARGS)

clean-env: ## remove what was installed
	@rm -rf .venv .uv

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 12
