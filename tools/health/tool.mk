variables += ADD DEVICES HEAT
.PHONY: health

health: setup ## say in a minute whether each GPU is sound (DEVICES="gpu0 gpu3"; HEAT=60: seconds of load; ADD=ARCHIVE: add to reference/cards)
	@$(python) tools/health/health.py $(if $(DEVICES),--devices $(DEVICES)) $(if $(HEAT),--heat "$$HEAT") \
		$(if $(ADD),--add "$$ADD")
