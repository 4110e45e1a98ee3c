// Curves along a text, drawn by uPlot. The pointer on a curve highlights the token at its position.
const tone = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const TONES = ["a", "b", "c", "d", "e", "good"];

const plots = new Map();  // the plots on the page, with their titles; the plots of two models may have the same title
function forgetCurves() {
  for (const plot of plots.keys()) plot.destroy();
  plots.clear();
}

// The range of all plots with a title, with a margin, so that their axes are equal.
function sharedRange(title) {
  let low = Infinity, high = -Infinity;
  for (const [plot, plotTitle] of plots) {
    if (plotTitle !== title) continue;
    for (const value of plot.data.slice(1).flat()) {
      if (value != null) { low = Math.min(low, value); high = Math.max(high, value); }
    }
  }
  return low > high ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true);
}

// Returns a function that draws named series with a value for each token, and removes its previous plot.
function curve(part, tokens) {
  let plot = null;
  return (names, ...series) => {
    names = [names].flat();
    plot?.destroy();
    plots.delete(plot);
    const axis = { stroke: tone("ink"), grid: { stroke: tone("line"), width: 1 }, ticks: { stroke: tone("line") } };
    const optionsOf = (name, number) => ({
      label: name, stroke: tone(TONES[number % TONES.length]), width: 1.2, points: { show: series[0].length < 120 },
      value: (_, value) => value == null ? "" : round(value),
    });
    const title = `${part.closest("section")?.querySelector("h2")?.textContent} ${names.join()}`;
    plot = new uPlot({
      width: Math.max(320, part.clientWidth), height: 130, legend: { show: names.length > 1 },
      scales: { x: { time: false }, y: { range: () => sharedRange(title) } },
      axes: [axis, { ...axis, size: 60 }],
      series: [{ label: "token", value: (_, place) => place == null ? "" : `${place + 1}` }, ...names.map(optionsOf)],
      cursor: { y: false, drag: { x: true, y: false } },
      hooks: { setCursor: [({ cursor: { idx, event } }) => { if (event && tokens[idx]) look(tokens[idx]); }] },
    }, null, part);
    plots.set(plot, title);
    const data = [series[0].map((_, place) => place), ...series];
    plot.setData(data);
    for (const [other, otherTitle] of plots) if (otherTitle === title && other !== plot) other.setData(other.data);
  };
}

// A section with curves: {"names": [...], "values": [[...], ...]}, one value for each token of the text.
drawers.curves = (part, numbers, article) => {
  curve(part, [...article.querySelectorAll(".tokens .w")])(numbers.names, ...numbers.values);
};
