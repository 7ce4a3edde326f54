/* SipHash-2-4: a hash with a key, for what outsiders must neither guess nor steer. Pure; any
 * thread. */
#ifndef POSTERN_BASE_SIP_H
#define POSTERN_BASE_SIP_H

#include "base/str.h"

struct sip_key {
    uint64_t k0, k1;
};

uint64_t sip_hash(const struct sip_key *key, struct str text);
/* A key made of a secret text: the same for the same text, everywhere. */
struct sip_key sip_key_of(struct str secret);

#endif
