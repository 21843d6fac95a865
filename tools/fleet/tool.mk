variables += ARCHIVES FLEET
.PHONY: fleet setup-fleet slurm

fleet: $(if $(ARCHIVES),setup-any,slurm setup-fleet) ## which cards are slow: ARCHIVES="n1.tar.gz n2.tar.gz", or every node of a Slurm cluster (tools/fleet/config.yaml; FLEET=folder)
ifneq ($(ARCHIVES),)
	@$(python) tools/fleet/fleet.py $(ARCHIVES) --into "$${FLEET:-fleet}"
else
	@mkdir -p "$${FLEET:-fleet}" && echo '*' > "$${FLEET:-fleet}/.gitignore"
	@PYTHONPATH="$(CURDIR)/.venv/tools/fleet" $(python) -m snakemake --snakefile tools/fleet/Snakefile \
		--workflow-profile tools/fleet/profile --directory "$${FLEET:-fleet}" $(ARGS)
	@test ! -s "$${FLEET:-fleet}/failing_nodes.txt"
endif

slurm:
	@sinfo > /dev/null 2>&1 || { echo 'No Slurm cluster answers (sinfo). To compare archives: ARCHIVES="n1.tar.gz n2.tar.gz"' >&2; exit 1; }

test: setup-fleet

setup-fleet:
	@envs/install.sh tool fleet
