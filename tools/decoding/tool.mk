variables += ACCEPT BATCH CACHE CARD CARDS CONTEXT DRAFT DRAFT_PARAMS IN MEASURE MODEL OUT PREFIX PRICE TOKENS_PER_S TRAIN
.PHONY: model

measuring = $(filter-out 0 no off false,$(MEASURE))
# Many environments have an OUT, a PREFIX or a TRAIN that means something else.
asked = $(foreach name,$(filter ACCEPT DRAFT DRAFT_PARAMS OUT PREFIX TOKENS_PER_S TRAIN,$(given)),$(if $($(name)),$(name)))
option = $(if $(filter $(2),$(asked)),--$(1)="$$$(2)")

model: $(if $(measuring),setup,setup-any) ## upper bound of a model's speed: MODEL=llama-3-70b CARD=reference/nvidia-h200 (BATCH, CONTEXT, CACHE, CARDS, IN, OUT, PRICE, DRAFT, TRAIN, MEASURE=1: tools/decoding/README.md; without MODEL: a list)
	@$(python) tools/decoding/decoding.py "$$MODEL" $(if $(CARD),--card "$$CARD") $(if $(CARDS),--cards="$$CARDS") $(if $(BATCH),--batch "$$BATCH") \
		$(if $(CONTEXT),--context "$$CONTEXT") $(if $(CACHE),--cache "$$CACHE") $(if $(measuring),--measure) \
		$(if $(PRICE),--price="$$PRICE") $(if $(IN),--in="$$IN") $(call option,out,OUT) $(call option,prefix,PREFIX) \
		$(call option,draft,DRAFT) $(call option,accept,ACCEPT) $(call option,draft-params,DRAFT_PARAMS) \
		$(call option,train,TRAIN) $(call option,tokens-per-s,TOKENS_PER_S)
