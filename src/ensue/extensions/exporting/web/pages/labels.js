
/** The names of all labels, in their order. */
function labelsOf(memory) {
  const { functions } = memory;
  return Array.from({ length: functions.labels() }, (_, id) => memory.text(functions.label_name(id)));
}
