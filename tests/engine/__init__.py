"""The engine equals `fold`, its modules are tested alone, and its C code is tested against numpy and by sanitizers."""
