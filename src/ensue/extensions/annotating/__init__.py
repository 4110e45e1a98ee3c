"""Better labels: doubts about them, texts that are worth a label, models taught by others."""
