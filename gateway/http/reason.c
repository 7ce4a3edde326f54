#include "http/reason.h"

const struct reason_text reason_texts[REASON_COUNT] = {
#define X(symbol, status, name, title) {status, name, title},
    REASONS(X)
#undef X
};
