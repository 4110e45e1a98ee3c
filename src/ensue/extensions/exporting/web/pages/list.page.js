const MAX_ROWS = 2000;  // rows that are shown

/** Shows a row for each output, with the texts and numbers of `cells`. */
function showRows(answers, cells) {
  byId("all").hidden = answers.length < 2;
  byId("shown").querySelector("tbody").replaceChildren(...answers.slice(0, MAX_ROWS).map((answer, place) => {
    const row = element("tr", "");
    row.replaceChildren(...cells(answer).map(cell => typeof cell === "string" ? element("td", cell) : element("td", cell.number, "number")));
    row.dataset.place = place;
    for (const cell of row.children) cell.dir = "auto";
    return row;
  }));
}

/** Describes the amount of input and the time. */
function speedOf(answers, what, start) {
  const taken = Math.round(performance.now() - start).toLocaleString("en");
  const cut = answers.length > MAX_ROWS ? `; the first ${MAX_ROWS.toLocaleString("en")} are shown` : "";
  return `${answers.length.toLocaleString("en")} ${what} in ${taken} ms${cut}`;
}

