load().then(model => listen(model, answer => [answer.labels.join(", ") || "none", { number: round(answer.probability, 4) }, answer.name], answer => {
  byId("told").textContent = answer ? `${answer.name} (${answer.size})` : instructions(model);
  showBars(model, answer);
})).catch(complain);
