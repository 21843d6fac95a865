variables += A B FORCE
.PHONY: compare

compare: setup-any ## are two runs different? A=one.tar.gz B=other.tar.gz (lists too; FORCE=1: other models of card)
	@$(python) tools/compare/compare.py "$$A" "$$B" $(if $(filter-out 0 no off false,$(FORCE)),--force)
