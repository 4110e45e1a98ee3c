/* The names of labels. */
EXPORTED(labels) int pageLabels(void) { return NAME_LABELS; }

EXPORTED(label_name) const char *pageLabelName(uint32_t id) {
    return (const char *)words32(&model, AT_LABELS) + words32(&model, AT_LABEL_STARTS)[id];
}
