variables += ACCEPT BATCH CACHE CARD CARDS CONTEXT DRAFT DRAFT_PARAMS IN MEASURE MODEL OUT PREFIX PRICE TOKENS_PER_S TRAIN
.PHONY: model

measuring = $(filter-out 0 no off false,$(MEASURE))
# Many environments have an OUT, a PREFIX or a TRAIN that means something else.
asked = $(foreach name,$(filter ACCEPT DRAFT DRAFT_PARAMS OUT PREFIX TOKENS_PER_S TRAIN,$(given)),$(if $($(name)),$(name)))
option = $(if $(filter $(2),$(asked)),--$(1)="$$$(2)")

model: $(if $(measuring),setup,setup-any) ## upper bound of a model's speed: MODEL=llama-3-70b CARD=reference/nvidia-h200 (BATCH=1,8 CONTEXT=1024 CACHE=fp8 PRICE=2.5; CARDS=2: split over cards; IN=1024 OUT=256: whole requests; DRAFT=3 ACCEPT=2.5 DRAFT_PARAMS=1e9: speculation; TRAIN=4096 TOKENS_PER_S=960: MFU; MEASURE=1: time a dense one; without MODEL: a list)
	@$(python) tools/decoding/decoding.py "$$MODEL" $(if $(CARD),--card "$$CARD") $(if $(CARDS),--cards="$$CARDS") $(if $(BATCH),--batch "$$BATCH") \
		$(if $(CONTEXT),--context "$$CONTEXT") $(if $(CACHE),--cache "$$CACHE") $(if $(measuring),--measure) \
		$(if $(PRICE),--price="$$PRICE") $(if $(IN),--in="$$IN") $(call option,out,OUT) $(call option,prefix,PREFIX) \
		$(call option,draft,DRAFT) $(call option,accept,ACCEPT) $(call option,draft-params,DRAFT_PARAMS) \
		$(call option,train,TRAIN) $(call option,tokens-per-s,TOKENS_PER_S)
