load().then(model => listen(model, answer => [answer.labels.join(", ") || "none", { number: round(answer.probability, 4) }, answer.name], answer => {
  of("told").textContent = answer ? `${answer.name} (${answer.size})` : asking(model);
  showBars(model, answer);
})).catch(complain);
