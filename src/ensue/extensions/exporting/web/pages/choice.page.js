/** Shows a bar for the probability of each label, the most probable first; no bars without an answer. */
function showBars(model, answer) {
  byId("bars").hidden = !answer;
  if (!answer) return;
  const ids = model.labels.map((_, id) => id).sort((one, other) => answer.probabilities[other] - answer.probabilities[one]);
  const predicted = new Set(answer.labels);
  byId("bars").tBodies[0].replaceChildren(...ids.map(id => {
    const share = answer.probabilities[id], bar = element("span", "", "share");
    const row = element("tr", element("th", model.labels[id]), predicted.has(model.labels[id]) ? "is" : "");
    row.firstChild.scope = "row";
    bar.style.width = `${100 * share}%`;
    row.append(element("td", bar), element("td", round(share, 4), "number"));
    return row;
  }));
}

