# Writes a pack in shares, several at a time, and merges them:
#
#   make -j4 -f scripts/repack_parts.mk SRC=MODEL PACK=model.tierpack PARTS=8 FLAGS='--profile chat.profile.json'
#
# Run again after an interruption, it goes on where it stopped. FLAGS go to every share and to the merge.

PARTS ?= 4
TIERPACK ?= tierpack
SHARES := $(addprefix share-,$(shell seq $(PARTS)))

.PHONY: pack $(SHARES)

pack: $(SHARES)
	$(TIERPACK) repack $(SRC) --to $(PACK) --merge $(FLAGS)

$(SHARES):
	$(TIERPACK) repack $(SRC) --to $(PACK) --part $(@:share-%=%)/$(PARTS) $(FLAGS)
