# make · make demo · make test: every target is a task of tools/tasks.py, which says what it runs and sets up what it needs.

PYTHON ?= python3
NAMES := $(or $(MAKECMDGOALS),help)

.NOTPARALLEL:
.PHONY: $(NAMES)
$(NAMES):
	@$(PYTHON) -m tools.tasks $@
