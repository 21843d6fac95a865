variables += AFFILIATION AFFILIATION_URL AUTHOR ORCID
.PHONY: crate setup-crate

crate: setup-crate ## make a run crate of an archive, for Zenodo and WorkflowHub (the newest, or ARCHIVE=FILE; AUTHOR="Name")
	@$(python) tools/crate/crate.py $(if $(ARCHIVE),"$$ARCHIVE") $(if $(AUTHOR),--author "$$AUTHOR") \
		$(if $(ORCID),--orcid "$$ORCID") $(if $(AFFILIATION),--affiliation "$$AFFILIATION") \
		$(if $(AFFILIATION_URL),--affiliation-url "$$AFFILIATION_URL")

setup-crate:
	@envs/install.sh tool crate
