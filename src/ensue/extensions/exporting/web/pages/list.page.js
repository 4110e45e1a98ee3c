const SHOWN = 2000;  // rows

/** Shows a row for each answer, with what `cells` gives: texts, and numbers as they are to be read. */
function showRows(answers, cells) {
  of("all").hidden = answers.length < 2;
  of("shown").querySelector("tbody").replaceChildren(...answers.slice(0, SHOWN).map((answer, place) => {
    const row = element("tr", "");
    row.replaceChildren(...cells(answer).map(cell => typeof cell === "string" ? element("td", cell) : element("td", cell.number, "number")));
    row.dataset.place = place;
    row.lastChild.dir = "auto";
    return row;
  }));
}

/** What was read, and in what time. */
function speedOf(answers, what, start) {
  const taken = Math.round(performance.now() - start).toLocaleString("en");
  const cut = answers.length > SHOWN ? `; the first ${SHOWN.toLocaleString("en")} are shown` : "";
  return `${answers.length.toLocaleString("en")} ${what} in ${taken} ms${cut}`;
}

/** Marks a part that is looked at, and no other one. */
function mark(shown, place) {
  shown.querySelector(".on")?.classList.remove("on");
  shown.querySelector(`[data-place="${place}"]`)?.classList.add("on");
}

