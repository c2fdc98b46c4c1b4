/* What a vertex shader does to positions, read from its source. */
#include "shader.h"
#include <stdlib.h>
#include <string.h>

#define TOKENS 8192
#define DEPTH 12 /* of local variables that stand for others, and of parentheses */

/* A name, a number or one sign. */
struct token {
    const char *at;
    uint32_t size;
};

struct source {
    struct token token[TOKENS];
    int tokens;
};

static bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_in_name(char c) { return begins_name(c) || (c >= '0' && c <= '9') || c == '.'; }

static bool is(const struct source *s, int i, const char *text) {
    return i >= 0 && i < s->tokens && s->token[i].size == strlen(text) && !memcmp(s->token[i].at, text, s->token[i].size);
}

static bool same(const struct source *s, int i, int j) {
    return s->token[i].size == s->token[j].size && !memcmp(s->token[i].at, s->token[j].at, s->token[i].size);
}

/* Names with what follows their dots are one token: `position.xyz`, `camera.view`. Comments and lines of the
 * preprocessor are left out. False: too much. */
static bool split(struct source *s, const char *at, const char *end) {
    bool line_begins = true;
    while (at < end) {
        if (*at == '\n') line_begins = true;
        if (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n') {
            at++;
        } else if (*at == '/' && at + 1 < end && at[1] == '/') {
            while (at < end && *at != '\n') at++;
        } else if (*at == '/' && at + 1 < end && at[1] == '*') {
            for (at += 2; at < end && !(at[-1] == '*' && *at == '/'); at++) {}
            if (at < end) at++;
        } else if (*at == '#' && line_begins) {
            while (at < end && *at != '\n') at++;
        } else if (s->tokens == TOKENS) {
            return false;
        } else {
            const char *from = at++;
            if (is_in_name(*from))
                while (at < end && is_in_name(*at)) at++;
            s->token[s->tokens++] = (struct token){from, (uint32_t)(at - from)};
            line_begins = false;
        }
    }
    return true;
}

/* The name of a token up to its first dot, or after it; false: too long, or there is none. */
static bool name_of(const struct token *t, bool after_dot, char name[HW_IDENTIFIER]) {
    const char *dot = memchr(t->at, '.', t->size), *from = t->at, *end = t->at + t->size;
    if (after_dot) from = dot ? dot + 1 : end;
    else if (dot) end = dot;
    size_t size = (size_t)(end - from);
    if (!size || size >= HW_IDENTIFIER) return false;
    memcpy(name, from, size);
    name[size] = 0;
    return true;
}

static bool is_precision(const struct source *s, int i) {
    return is(s, i, "highp") || is(s, i, "mediump") || is(s, i, "lowp");
}

/* `layout(location = 3, ...)`, or another word, that ends just before a token; -1: none. */
static int layout_of(const struct source *s, int end, const char *word) {
    if (!is(s, end - 1, ")")) return -1;
    for (int i = end - 2; i > 1 && !is(s, i, "("); i--)
        if (is(s, i - 1, "=") && is(s, i - 2, word)) return atoi(s->token[i].at);
    return -1;
}

static bool is_type(const struct source *s, int i, const char *begin) {
    return i < s->tokens && s->token[i].size > strlen(begin) && !memcmp(s->token[i].at, begin, strlen(begin));
}

/* Whether `mat4 a, b;`, whose type this is, declares the name; an array is no matrix. */
static bool declares(const struct source *s, int type, const char *name) {
    for (int i = type + 1; i + 1 < s->tokens; i += 2) {
        bool more = is(s, i + 1, ",");
        if (is(s, i, name) && (more || is(s, i + 1, ";"))) return true;
        if (!more) return false;
    }
    return false;
}

/* `attribute vec3 name;` or, since version 300, `in vec3 name;`. */
static bool find_attribute(const struct source *s, const char *name, int *location) {
    for (int i = 0; i + 3 < s->tokens; i++) {
        if (!is(s, i, "attribute") && !is(s, i, "in")) continue;
        int type = i + 1 + is_precision(s, i + 1);
        if (!is_type(s, type, "vec") || !declares(s, type, name)) continue;
        *location = layout_of(s, i, "location");
        return true;
    }
    return false;
}

/* Alignment and size by std140; false: a type that is not known here. */
static bool std140(const struct source *s, int i, uint32_t *alignment, uint32_t *size) {
    static const struct { const char *name; uint32_t alignment, size; } types[] = {
        {"float", 4, 4}, {"int", 4, 4}, {"uint", 4, 4}, {"bool", 4, 4}, {"vec2", 8, 8}, {"ivec2", 8, 8},
        {"vec3", 16, 12}, {"ivec3", 16, 12}, {"vec4", 16, 16}, {"ivec4", 16, 16}, {"uvec4", 16, 16},
        {"mat3", 16, 48}, {"mat4", 16, 64}};
    for (size_t n = 0; n < sizeof types / sizeof *types; n++)
        if (is(s, i, types[n].name)) {
            *alignment = types[n].alignment;
            *size = types[n].size;
            return true;
        }
    return false;
}

/* Where in `uniform Block { ...; mat4 name; } instance;`, whose `{` this is, the matrix stands. */
static bool find_member(const struct source *s, int open, const char *name, uint32_t *offset) {
    *offset = 0;
    for (int i = open + 1; i < s->tokens && !is(s, i, "}");) {
        uint32_t alignment, size, count = 1;
        i += is_precision(s, i);
        if (!std140(s, i, &alignment, &size) || i + 2 >= s->tokens) return false;
        int member = i + 1;
        i += 2;
        if (is(s, i, "[") && is(s, i + 2, "]")) {
            int length = atoi(s->token[i + 1].at);
            if (length < 1 || length > 4096) return false;
            count = (uint32_t)length;
            alignment = 16;
            size = (size + 15) / 16 * 16;
            i += 3;
        }
        if (!is(s, i++, ";")) return false;
        *offset = (*offset + alignment - 1) / alignment * alignment;
        if (is(s, member, name)) return count == 1 && is(s, member - 1, "mat4");
        *offset += size * count;
    }
    return false;
}

/* Adds the uniform matrix that this token names. */
static bool add_matrix(const struct source *s, int token, struct hw_position *p) {
    char name[HW_IDENTIFIER], member[HW_IDENTIFIER];
    if (p->matrices == HW_MATRICES || !name_of(&s->token[token], false, name)) return false;
    bool dotted = name_of(&s->token[token], true, member);
    for (int i = 0; i + 3 < s->tokens; i++) {
        if (!is(s, i, "uniform")) continue;
        int type = i + 1 + is_precision(s, i + 1);
        if (!dotted && is(s, type, "mat4") && declares(s, type, name)) {
            strcpy(p->matrix[p->matrices].name, name);
            p->matrix[p->matrices].location = layout_of(s, i, "location");
            p->matrix[p->matrices++].block[0] = 0;
            return true;
        }
        if (!is(s, i + 2, "{") || !is(s, i - 1, ")")) continue; /* a block with a layout */
        int end = i + 2;
        bool known_layout = false;
        for (int n = i - 2; n >= 0 && !is(s, n, "("); n--) known_layout = known_layout || is(s, n, "std140");
        while (end < s->tokens && !is(s, end, "}")) end++;
        uint32_t offset;
        if (dotted ? !is(s, end + 1, name) : !is(s, end + 1, ";")) continue;
        if (!find_member(s, i + 2, dotted ? member : name, &offset)) continue;
        if (!known_layout || !name_of(&s->token[i + 1], false, p->matrix[p->matrices].block)) return false;
        strcpy(p->matrix[p->matrices].name, dotted ? member : name);
        p->matrix[p->matrices].location = layout_of(s, i, "binding");
        p->matrix[p->matrices++].offset = offset;
        return true;
    }
    return false;
}

static bool product(const struct source *s, int *at, struct hw_position *p, int depth, bool *complete);

/* Where a local variable is first given a value; -1: nowhere. `displaced`: it is changed later. */
static int assignment(const struct source *s, int token, bool *displaced) {
    int found = -1;
    char name[HW_IDENTIFIER], wanted[HW_IDENTIFIER];
    if (!name_of(&s->token[token], false, wanted)) return -1;
    for (int i = 0; i + 2 < s->tokens; i++) {
        bool compound = is(s, i + 1, "*") || is(s, i + 1, "+") || is(s, i + 1, "-") || is(s, i + 1, "/");
        if (!is(s, i + 1 + compound, "=") || is(s, i + 2 + compound, "=")) continue;
        if (!name_of(&s->token[i], false, name) || strcmp(name, wanted)) continue;
        if (found >= 0 || compound || !same(s, i, token)) *displaced = true;
        else found = i + 2;
    }
    return found;
}

/* Over an expression, to the comma, parenthesis or semicolon behind it. */
static void skip(const struct source *s, int *at, int from) {
    int depth = 0;
    for (*at = from; *at < s->tokens && !is(s, *at, ";"); (*at)++) {
        if (!depth && (is(s, *at, ",") || is(s, *at, ")"))) return;
        depth += is(s, *at, "(") - is(s, *at, ")");
    }
}

/* A matrix, the attribute (then the product is complete) or what stands for them. */
static bool factor(const struct source *s, int *at, struct hw_position *p, int depth, bool *complete) {
    int i = *at;
    char name[HW_IDENTIFIER];
    if (depth > DEPTH || i >= s->tokens || *complete) return false;
    if (is(s, i, "(")) {
        (*at)++;
        return product(s, at, p, depth + 1, complete) && is(s, (*at)++, ")");
    }
    if (!name_of(&s->token[i], false, name)) return false;
    if ((is(s, i, "vec4") || is(s, i, "vec3")) && is(s, i + 1, "(")) { /* of the attribute, and numbers */
        *at += 2;
        if (!product(s, at, p, depth + 1, complete) || !*complete) return false;
        while (is(s, *at, ",")) {
            char first = *at + 1 < s->tokens ? s->token[*at + 1].at[0] : 'x';
            bool number = first == '.' || (first >= '0' && first <= '9');
            if (!number && !(*at + 1 < s->tokens && name_of(&s->token[*at + 1], false, name) && !strcmp(name, p->attribute)))
                p->displaced = true; /* a component of something else */
            skip(s, at, *at + 1);
        }
        return is(s, (*at)++, ")");
    }
    if (!begins_name(*s->token[i].at) || is(s, i + 1, "(") || is(s, i + 1, "[")) return false;
    *at = i + 1;
    if (find_attribute(s, name, &p->location)) {
        strcpy(p->attribute, name);
        *complete = true;
        return true;
    }
    if (add_matrix(s, i, p)) return true;
    int value = assignment(s, i, &p->displaced);
    return value >= 0 && product(s, &value, p, depth + 1, complete) && is(s, value, ";");
}

static bool product(const struct source *s, int *at, struct hw_position *p, int depth, bool *complete) {
    if (!factor(s, at, p, depth, complete)) return false;
    while (is(s, *at, "*")) {
        (*at)++;
        if (!factor(s, at, p, depth, complete)) return false;
    }
    while (*complete && (is(s, *at, "+") || is(s, *at, "-"))) { /* moved by something */
        p->displaced = true;
        skip(s, at, *at);
    }
    return true;
}

void hw_read_position(const char *source, size_t size, struct hw_position *position) {
    memset(position, 0, sizeof *position);
    position->location = -1;
    struct source *s = calloc(1, sizeof *s);
    bool complete = false;
    int place = -1;
    if (s && split(s, source, source + size))
        for (int i = 0; i + 2 < s->tokens; i++) {
            if (!is_type(s, i, "gl_Positio")) continue;
            if (is(s, i, "gl_Position") && is(s, i + 1, "=") && place == -1) place = i + 2;
            else if (!is(s, i + 1, ";")) place = -2; /* changed, read or set again: not followed */
        }
    position->found = place >= 0 && product(s, &place, position, 0, &complete) && complete && is(s, place, ";");
    free(s);
}

uint64_t hw_hash_source(uint64_t hash, const char *source, size_t size) {
    for (size_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)source[i]) * 0x100000001b3ull;
    return hash;
}
