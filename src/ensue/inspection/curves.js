// Curves along a text, drawn by uPlot: the pointer on one looks at the token below it.
const tone = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const TONES = ["a", "b", "c", "d", "e", "good"];

const plots = new Map();  // those that are on the page, each with what it shows, which two models may both have
function forgetCurves() {
  for (const plot of plots.keys()) plot.destroy();
  plots.clear();
}

// The least and the largest value of all curves that show the same, with some room, so that they have one axis.
function sharedRange(what) {
  let low = Infinity, high = -Infinity;
  for (const [plot, shown] of plots) {
    if (shown !== what) continue;
    for (const value of plot.data.slice(1).flat()) {
      if (value != null) { low = Math.min(low, value); high = Math.max(high, value); }
    }
  }
  return low > high ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true);
}

// Returns a function that draws named values, one for each token, in place of those before.
function curve(part, tokens) {
  let plot = null;
  return (names, ...series) => {
    names = [names].flat();
    plot?.destroy();
    plots.delete(plot);
    const axis = { stroke: tone("ink"), grid: { stroke: tone("line"), width: 1 }, ticks: { stroke: tone("line") } };
    const named = (name, place) => ({
      label: name, stroke: tone(TONES[place % TONES.length]), width: 1.2, points: { show: series[0].length < 120 },
      value: (_, value) => value == null ? "" : round(value),
    });
    const what = `${part.closest("section")?.querySelector("h2")?.textContent} ${names.join()}`;
    plot = new uPlot({
      width: Math.max(320, part.clientWidth), height: 130, legend: { show: names.length > 1 },
      scales: { x: { time: false }, y: { range: () => sharedRange(what) } },
      axes: [axis, { ...axis, size: 60 }],
      series: [{ label: "token", value: (_, place) => place == null ? "" : `${place + 1}` }, ...names.map(named)],
      cursor: { y: false, drag: { x: true, y: false } },
      hooks: { setCursor: [({ cursor: { idx, event } }) => { if (event && tokens[idx]) look(tokens[idx]); }] },
    }, null, part);
    plots.set(plot, what);
    const data = [series[0].map((_, place) => place), ...series];
    plot.setData(data);
    for (const [twin, shown] of plots) if (shown === what && twin !== plot) twin.setData(twin.data);
  };
}

// A part with curves of its own: {"names": [...], "values": [[...], ...]}, one value for each token of the text.
drawers.curves = (part, numbers, article) => {
  curve(part, [...article.querySelectorAll(".tokens .w")])(numbers.names, ...numbers.values);
};
