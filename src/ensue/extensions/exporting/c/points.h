/* Characters as tokens: the sorted code points `points`, and their `ids`; the id of unknown characters is 0. */
static uint32_t find_point(const NAME_model *model, uint32_t point) {
    const uint32_t *points = words32(model, AT_POINTS), *ids = words32(model, AT_IDS);
    uint32_t low = 0, high = POINTS;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (points[middle] < point) low = middle + 1;
        else high = middle;
    }
    return low < POINTS && points[low] == point ? ids[low] : 0;
}
