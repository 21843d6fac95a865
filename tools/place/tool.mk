variables += CARD REPORT TRACE
.PHONY: place setup-place

place: setup-place ## a program under measured ceilings: TRACE=my.json.gz or REPORT=my.ncu-rep (CARD=reference/nvidia-h200); without, how to collect them
	@$(python) tools/place/place.py $(if $(REPORT),"$$REPORT",$(if $(TRACE),--trace "$$TRACE")) $(if $(CARD),--card "$$CARD")

setup-place:
	@envs/install.sh tool place
