variables += BATCH CACHE CARD CONTEXT IN MEASURE MODEL OUT PREFIX PRICE
.PHONY: model

measuring = $(filter-out 0 no off false,$(MEASURE))
# Many environments have an OUT or a PREFIX that means something else.
request = $(foreach name,$(filter OUT PREFIX,$(given)),$(if $($(name)),$(name)))

model: $(if $(measuring),setup,setup-any) ## upper bound of a model's speed: MODEL=llama-3-70b CARD=reference/nvidia-h200 (BATCH=1,8 CONTEXT=1024 CACHE=fp8 PRICE=2.5; IN=1024 OUT=256: whole requests; MEASURE=1: time a dense one)
	@$(python) tools/decoding/decoding.py "$$MODEL" $(if $(CARD),--card "$$CARD") $(if $(BATCH),--batch "$$BATCH") \
		$(if $(CONTEXT),--context "$$CONTEXT") $(if $(CACHE),--cache "$$CACHE") $(if $(measuring),--measure) \
		$(if $(PRICE),--price="$$PRICE") $(if $(IN),--in="$$IN") $(if $(filter OUT,$(request)),--out="$$OUT") \
		$(if $(filter PREFIX,$(request)),--prefix="$$PREFIX")
