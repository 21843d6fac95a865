variables += ADD DEVICES HEAT REPEAT
.PHONY: health

health: setup ## say in a minute whether each GPU is sound (DEVICES="gpu0 gpu3"; HEAT=60 REPEAT=600: seconds; ADD=ARCHIVE: add to reference/cards)
	@$(python) tools/health/health.py $(if $(DEVICES),--devices $(DEVICES)) $(if $(HEAT),--heat "$$HEAT") \
		$(if $(REPEAT),--repeat "$$REPEAT") $(if $(ADD),--add "$$ADD")
