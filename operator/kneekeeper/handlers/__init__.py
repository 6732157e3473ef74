"""kopf decorators, each a few lines that delegate: observe, decide, act, patch."""
