variables += CARD REPORT
.PHONY: place setup-place

place: setup-place ## a program's kernels under measured ceilings: REPORT=my.ncu-rep (CARD=reference/nvidia-h200); without it, how to collect it
	@$(python) tools/place/place.py $(if $(REPORT),"$$REPORT") $(if $(CARD),--card "$$CARD")

setup-place:
	@envs/install.sh tool place
