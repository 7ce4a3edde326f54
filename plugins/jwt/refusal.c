#include "refusal.h"

const struct postern_reason jwt_reasons[REASON_COUNT] = {
#define X(symbol, reason, title) {reason, title},
    JWT_REASONS(X)
#undef X
};

#define X(symbol, reason, title) static const char name_##symbol[] = reason;
JWT_REASONS(X)
#undef X

const struct refusal_info refusal_info[REFUSAL_COUNT] = {{0, NULL, NULL, NULL},
#define X(symbol, status, reason, error, sentence) {status, name_##reason, error, sentence},
                                                         REFUSALS(X)
#undef X
};
