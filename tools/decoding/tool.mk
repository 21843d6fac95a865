variables += BATCH CACHE CARD CONTEXT MEASURE MODEL
.PHONY: model

measuring = $(filter-out 0 no off false,$(MEASURE))

model: $(if $(measuring),setup,setup-any) ## upper bound of decode speed: MODEL=llama-3-70b CARD=reference/nvidia-h200 (BATCH=1,8 CONTEXT=1024 CACHE=fp8; MEASURE=1: time a dense one)
	@$(python) tools/decoding/decoding.py "$$MODEL" $(if $(CARD),--card "$$CARD") $(if $(BATCH),--batch "$$BATCH") \
		$(if $(CONTEXT),--context "$$CONTEXT") $(if $(CACHE),--cache "$$CACHE") $(if $(measuring),--measure)
