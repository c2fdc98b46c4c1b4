/* Streams, events, values in memory, captures and graphs. */
#include "driver.h"
#include <stdlib.h>

static struct event *events;
static struct graph *graphs;
static struct capture *captures[16]; /* those in progress */
static uint64_t capture_ids;
static _Thread_local int thread_mode = CU_CAPTURE_GLOBAL;

/* ---- what a capture forbids ------------------------------------------------------------------ */

CUresult invalidate(struct capture *c, CUresult error) {
    c->status = CU_CAPTURE_INVALIDATED;
    return error;
}

/* Some calls may wait for what is only being written down: which captures mind depends on their mode,
 * on who calls, and on what that thread declared. */
CUresult unsafe_call(void) {
    CUresult error = CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof captures / sizeof *captures; i++) {
        struct capture *c = captures[i];
        if (!c || c->mode == CU_CAPTURE_RELAXED || thread_mode == CU_CAPTURE_RELAXED) continue;
        bool own = c->thread == &thread_mark;
        if (own || (c->mode == CU_CAPTURE_GLOBAL && thread_mode == CU_CAPTURE_GLOBAL))
            error = invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return error;
}

/* The legacy default stream would have to wait for streams that are only being captured. */
CUresult touch_legacy(CUcontext ctx, bool spoil) {
    for (struct stream *s = ctx->streams; s; s = s->next)
        if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) {
            if (spoil) invalidate(s->capture, 0);
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return CUDA_SUCCESS;
}

static void end(struct capture *c) {
    for (struct stream *s = c->origin->ctx->streams; s; s = s->next)
        if (s->capture == c) s->capture = NULL;
    for (size_t i = 0; i < sizeof captures / sizeof *captures; i++)
        if (captures[i] == c) captures[i] = NULL;
    c->status = CU_CAPTURE_NONE;
}

/* Those of a context that ends, or of one stream of it. */
void end_captures(CUcontext ctx, const struct stream *origin) {
    for (size_t i = 0; i < sizeof captures / sizeof *captures; i++)
        if (captures[i] && captures[i]->origin->ctx == ctx && (!origin || captures[i]->origin == origin))
            end(captures[i]);
}

/* To wait for a stream, or to ask whether it is done. */
static CUresult may_wait_for(struct stream *s) {
    if (s->capture) return invalidate(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return s->legacy ? touch_legacy(s->ctx, true) : CUDA_SUCCESS;
}

/* ---- streams ------------------------------------------------------------------------------- */

static CUresult create(CUstream *stream, unsigned flags, int priority) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!stream || flags > CU_STREAM_NON_BLOCKING) return leave(CUDA_ERROR_INVALID_VALUE);
    *stream = new_stream(ctx, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return create(stream, flags, 0); }

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    return create(stream, flags, priority);
}

/* Comes back at once; what is in the stream is still done. */
EXPORT CUresult cuStreamDestroy_v2(CUstream h) {
    struct stream *s;
    if (!h || h == CU_STREAM_LEGACY || h == CU_STREAM_PER_THREAD) return CUDA_ERROR_INVALID_HANDLE;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (s->capture) invalidate(s->capture, 0);
    end_captures(s->ctx, s);
    s->doomed = true;
    if (!s->head) unlink_stream(s);
    return leave(CUDA_SUCCESS);
}
EXPORT CUresult cuStreamDestroy(CUstream) __attribute__((alias("cuStreamDestroy_v2")));

PT(cuStreamSynchronize, _ptsz, (CUstream h), (h)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if ((error = may_wait_for(s))) return leave(error);
    return leave(wait_idle(s, s->ctx->seq));
}

PT(cuStreamQuery, _ptsz, (CUstream h), (h)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if ((error = may_wait_for(s))) return leave(error);
    return leave(is_idle(s, s->ctx->seq) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

#define GETTER(name, type, value) \
    PT(name, _ptsz, (CUstream h, type *answer), (h, answer)) { \
        struct stream *s; \
        CUresult error = enter_stream(h, &s); \
        if (error) return error; \
        if (answer) *answer = value; \
        return leave(answer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE); \
    }
GETTER(cuStreamGetFlags, unsigned, s->flags)
GETTER(cuStreamGetPriority, int, s->priority)

/* The first version has no answer for a stream of a green context. */
PT(cuStreamGetCtx, _ptsz, (CUstream h, CUcontext *ctx), (h, ctx)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (!ctx) return leave(CUDA_ERROR_INVALID_VALUE);
    *ctx = s->ctx;
    return leave(s->sms ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS);
}

GETTER(cuStreamGetId, unsigned long long, s->id)

/* ---- events -------------------------------------------------------------------------------- */

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!event || flags > 7) return leave(CUDA_ERROR_INVALID_VALUE);
    struct event *e = calloc(1, sizeof *e);
    *e = (struct event){.next = events, .ctx = ctx, .flags = flags, .users = 1};
    *event = events = e;
    return leave(CUDA_SUCCESS);
}

static struct event **link_to(struct event *e) {
    struct event **link = &events;
    while (*link && *link != e) link = &(*link)->next;
    return link;
}

static CUresult enter_event(CUevent e) {
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    return e && *link_to(e) ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

EXPORT CUresult cuEventDestroy_v2(CUevent e) {
    CUresult error = enter_event(e);
    if (error) return error;
    *link_to(e) = e->next;
    drop_event(e);
    return leave(CUDA_SUCCESS);
}
EXPORT CUresult cuEventDestroy(CUevent) __attribute__((alias("cuEventDestroy_v2")));

EXPORT CUresult cuEventQuery(CUevent e) {
    CUresult error = enter_event(e);
    if (error) return error;
    if (e->capture) return leave(CUDA_ERROR_CAPTURED_EVENT);
    return leave(e->completed == e->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

EXPORT CUresult cuEventSynchronize(CUevent e) {
    CUresult error = enter_event(e);
    if (error) return error;
    return leave(e->capture ? CUDA_ERROR_CAPTURED_EVENT : wait_event(e));
}

EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end) {
    CUresult error = enter_event(start);
    if (error) return error;
    if (!end || !*link_to(end)) return leave(CUDA_ERROR_INVALID_HANDLE);
    if (!ms) return leave(CUDA_ERROR_INVALID_VALUE);
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) || !start->recorded || !end->recorded)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if (start->completed < start->recorded || end->completed < end->recorded) return leave(CUDA_ERROR_NOT_READY);
    *ms = (float)((double)((int64_t)(end->time_ns - start->time_ns)) * 1e-6);
    return leave(CUDA_SUCCESS);
}
EXPORT CUresult cuEventElapsedTime(float *, CUevent, CUevent) __attribute__((alias("cuEventElapsedTime_v2")));

static CUresult record(CUevent e, CUstream h) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (!e || !*link_to(e) || e->ctx != s->ctx) return leave(CUDA_ERROR_INVALID_HANDLE);
    if (s->capture) {
        if (s->capture->status != CU_CAPTURE_ACTIVE) return leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        e->capture = s->capture;
        e->from = s;
        e->after = s->captured;
        return leave(CUDA_SUCCESS);
    }
    struct op op = {.kind = RECORD, .event = {e, e->recorded + 1}};
    if ((error = submit(s, &op))) return leave(error);
    e->capture = NULL;
    e->recorded++;
    e->users++;
    return leave(CUDA_SUCCESS);
}

PT(cuEventRecord, _ptsz, (CUevent e, CUstream h), (e, h)) { return record(e, h); }

PT(cuEventRecordWithFlags, _ptsz, (CUevent e, CUstream h, unsigned flags), (e, h, flags)) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(e, h);
}

/* To wait for a captured event makes the stream part of the capture, or leads back from it. */
static CUresult wait_captured(struct stream *s, struct event *e) {
    if (e->capture->status == CU_CAPTURE_NONE) return CUDA_ERROR_CAPTURED_EVENT;
    if (e->capture->status != CU_CAPTURE_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s->capture && s->capture != e->capture) {
        invalidate(s->capture, 0);
        return invalidate(e->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (s->legacy) return invalidate(e->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (!s->capture) s->captured = 0;
    s->capture = e->capture;
    s->joined = false;
    if (e->from != s && e->from->captured == e->after) e->from->joined = true;
    return CUDA_SUCCESS;
}

PT(cuStreamWaitEvent, _ptsz, (CUstream h, CUevent e, unsigned flags), (h, e, flags)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (!e || !*link_to(e)) return leave(CUDA_ERROR_INVALID_HANDLE);
    if (flags > 1) return leave(CUDA_ERROR_INVALID_VALUE);
    if (e->capture) return leave(wait_captured(s, e));
    if (s->capture) return leave(invalidate(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
    if (!e->recorded) return leave(CUDA_SUCCESS);
    struct op op = {.kind = WAIT_EVENT, .event = {e, e->recorded}};
    if ((error = submit(s, &op))) return leave(error);
    e->users++;
    return leave(CUDA_SUCCESS);
}

/* ---- values in memory ------------------------------------------------------------------------ */

static bool make_value(struct op *op, const CUmemOp *wanted) {
    unsigned what = wanted->operation;
    bool waits = what == CU_OP_WAIT32 || what == CU_OP_WAIT64, writes = what == CU_OP_WRITE32 || what == CU_OP_WRITE64;
    int bytes = what == CU_OP_WAIT32 || what == CU_OP_WRITE32 ? 4 : 8;
    char *at = host_address(wanted->value.address, (size_t)bytes);
    *op = (struct op){.kind = waits ? WAIT : WRITE};
    op->value.address = at;
    op->value.value = wanted->value.value;
    op->value.bytes = bytes;
    op->value.test = wanted->value.flags;
    return (waits || writes) && at && wanted->value.address % (unsigned)bytes == 0;
}

static CUresult value(CUstream h, CUmemOp *ops, unsigned count) {
    struct stream *s;
    CUresult error = enter_own_stream(h, &s);
    if (error) return error;
    if (settings.no_memops) return leave(CUDA_ERROR_NOT_SUPPORTED);
    struct op made[256];
    unsigned made_count = 0; /* all are looked at before any is done */
    for (unsigned i = 0; i < count; i++) {
        if (ops[i].operation == CU_OP_BARRIER) continue;
        if (!make_value(&made[made_count++], &ops[i])) return leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (unsigned i = 0; i < made_count && !error; i++) error = submit(s, &made[i]);
    return leave(error);
}

#define VALUE(name, type, what) \
    PT(name, _ptsz, (CUstream h, CUdeviceptr at, type v, unsigned flags), (h, at, v, flags)) { \
        CUmemOp op = {.value = {.operation = what, .address = at, .value = v, .flags = flags}}; \
        return value(h, &op, 1); \
    }
VALUE(cuStreamWriteValue32, uint32_t, CU_OP_WRITE32)
VALUE(cuStreamWriteValue32_v2, uint32_t, CU_OP_WRITE32)
VALUE(cuStreamWriteValue64, uint64_t, CU_OP_WRITE64)
VALUE(cuStreamWriteValue64_v2, uint64_t, CU_OP_WRITE64)
VALUE(cuStreamWaitValue32, uint32_t, CU_OP_WAIT32)
VALUE(cuStreamWaitValue32_v2, uint32_t, CU_OP_WAIT32)
VALUE(cuStreamWaitValue64, uint64_t, CU_OP_WAIT64)
VALUE(cuStreamWaitValue64_v2, uint64_t, CU_OP_WAIT64)

#define BATCH(name) \
    PT(name, _ptsz, (CUstream h, unsigned count, CUmemOp *ops, unsigned flags), (h, count, ops, flags)) { \
        return !ops || !count || count > 256 || flags ? CUDA_ERROR_INVALID_VALUE : value(h, ops, count); \
    }
BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_v2)

/* ---- captures ------------------------------------------------------------------------------ */

static struct graph *new_graph(void) {
    struct graph *g = calloc(1, sizeof *g);
    g->next = graphs;
    return graphs = g;
}

CUresult add_node(struct graph *g, const struct op *wanted) {
    struct op *op = malloc(sizeof *op);
    *op = *wanted;
    op->next = NULL;
    if (g->tail) g->tail->next = op;
    else g->head = op;
    g->tail = op;
    return CUDA_SUCCESS;
}

static CUresult begin(CUstream h, int mode) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (mode < CU_CAPTURE_GLOBAL || mode > CU_CAPTURE_RELAXED) return leave(CUDA_ERROR_INVALID_VALUE);
    if (s->legacy) return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (s->capture) return leave(CUDA_ERROR_ILLEGAL_STATE);
    size_t slot = 0;
    while (slot < sizeof captures / sizeof *captures && captures[slot]) slot++;
    if (slot == sizeof captures / sizeof *captures) return leave(CUDA_ERROR_OUT_OF_MEMORY);
    struct capture *c = malloc(sizeof *c); /* never freed: events may still name it */
    *c = (struct capture){++capture_ids, mode, CU_CAPTURE_ACTIVE, s, &thread_mark, new_graph()};
    captures[slot] = s->capture = c;
    s->captured = 0;
    return leave(CUDA_SUCCESS);
}

PT(cuStreamBeginCapture, _ptsz, (CUstream h), (h)) { return begin(h, CU_CAPTURE_GLOBAL); }
PT(cuStreamBeginCapture_v2, _ptsz, (CUstream h, int mode), (h, mode)) { return begin(h, mode); }

static void destroy_graph(struct graph *g) {
    struct graph **link = &graphs;
    while (*link != g) link = &(*link)->next;
    *link = g->next;
    for (struct op *op = g->head, *next; op; op = next) next = op->next, free(op);
    free(g);
}

PT(cuStreamEndCapture, _ptsz, (CUstream h, CUgraph *graph), (h, graph)) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (!graph) return leave(CUDA_ERROR_INVALID_VALUE);
    struct capture *c = s->capture;
    *graph = NULL;
    if (!c) return leave(CUDA_ERROR_ILLEGAL_STATE);
    if (c->origin != s) return leave(invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    if (c->mode != CU_CAPTURE_RELAXED && c->thread != &thread_mark)
        return leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (c->status != CU_CAPTURE_ACTIVE) error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    for (struct stream *other = s->ctx->streams; other; other = other->next)
        if (other->capture == c && other != s && !other->joined && !error) error = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    end(c);
    if (error) destroy_graph(c->graph);
    else *graph = c->graph;
    return leave(error);
}

static CUresult capture_info(CUstream h, int *status, uint64_t *id, CUgraph *graph, CUgraphNode const **nodes,
                             size_t *count) {
    struct stream *s;
    CUresult error = enter_stream(h, &s);
    if (error) return error;
    if (!status) return leave(CUDA_ERROR_INVALID_VALUE);
    if (s->legacy && (error = touch_legacy(s->ctx, false))) return leave(error);
    *status = s->capture ? s->capture->status : CU_CAPTURE_NONE;
    if (*status != CU_CAPTURE_ACTIVE) return leave(CUDA_SUCCESS);
    if (id) *id = s->capture->id;
    if (graph) *graph = s->capture->graph;
    if (nodes) *nodes = &s->capture->graph->tail;
    if (count) *count = s->capture->graph->tail != NULL;
    return leave(CUDA_SUCCESS);
}

PT(cuStreamIsCapturing, _ptsz, (CUstream h, int *status), (h, status)) {
    return capture_info(h, status, NULL, NULL, NULL, NULL);
}
PT(cuStreamGetCaptureInfo, _ptsz, (CUstream h, int *status, uint64_t *id), (h, status, id)) {
    return capture_info(h, status, id, NULL, NULL, NULL);
}
PT(cuStreamGetCaptureInfo_v2, _ptsz,
   (CUstream h, int *status, uint64_t *id, CUgraph *graph, CUgraphNode const **nodes, size_t *count),
   (h, status, id, graph, nodes, count)) {
    return capture_info(h, status, id, graph, nodes, count);
}
PT(cuStreamGetCaptureInfo_v3, _ptsz,
   (CUstream h, int *status, uint64_t *id, CUgraph *graph, CUgraphNode const **nodes, const void **edges,
    size_t *count),
   (h, status, id, graph, nodes, edges, count)) {
    if (edges) *edges = NULL;
    return capture_info(h, status, id, graph, nodes, count);
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    if (!mode || *mode < CU_CAPTURE_GLOBAL || *mode > CU_CAPTURE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return initialized();
}

/* ---- graphs: nodes in the order in which they were added ----------------------------------------- */

static struct graph *known(struct graph *wanted, bool executable) {
    struct graph *g = graphs;
    while (g && (g != wanted || g->executable != executable)) g = g->next;
    return g;
}

EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    CUresult error = initialized();
    if (error) return error;
    if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&big);
    *graph = new_graph();
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const CUkernelNodeParams *p) {
    (void)after, (void)count; /* they exist, so they come earlier */
    struct op op;
    CUcontext ctx;
    CUresult error = enter(&ctx);
    if (error) return error;
    if (!node || !p || !known(graph, false)) return leave(CUDA_ERROR_INVALID_VALUE);
    const unsigned dims[6] = {p->gridX, p->gridY, p->gridZ, p->blockX, p->blockY, p->blockZ};
    if (!(error = make_launch(&op, p->function, dims, p->params, p->extra))) error = add_node(graph, &op);
    if (!error) *node = graph->tail;
    return leave(error);
}
EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUkernelNodeParams *)
    __attribute__((alias("cuGraphAddKernelNode")));

static CUresult instantiate(CUgraphExec *exec, CUgraph graph) {
    CUresult error = initialized();
    if (error) return error;
    pthread_mutex_lock(&big);
    if (!exec || !known(graph, false)) return leave(CUDA_ERROR_INVALID_VALUE);
    struct graph *g = new_graph();
    g->executable = true;
    for (const struct op *op = graph->head; op; op = op->next) add_node(g, op);
    *exec = g;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size) {
    (void)node, (void)log, (void)size;
    return instantiate(exec, graph);
}
EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t)
    __attribute__((alias("cuGraphInstantiate")));

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    (void)flags;
    return instantiate(exec, graph);
}

PT(cuGraphInstantiateWithParams, _ptsz, (CUgraphExec *exec, CUgraph graph, CUinstantiateParams *p), (exec, graph, p)) {
    if (p) p->result = 0;
    return p ? instantiate(exec, graph) : CUDA_ERROR_INVALID_VALUE;
}

PT(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream h), (exec, h)) {
    struct stream *s;
    if (settings.launch_us) pause_ns(settings.launch_us * 1000);
    CUresult error = enter_own_stream(h, &s);
    if (error) return error;
    if (!known(exec, true)) return leave(CUDA_ERROR_INVALID_VALUE);
    for (const struct op *op = exec->head; op && !error; op = op->next) error = submit(s, op);
    return leave(error);
}

static CUresult destroy(struct graph *graph, bool executable) {
    CUresult error = initialized();
    if (error) return error;
    pthread_mutex_lock(&big);
    if (!known(graph, executable)) return leave(CUDA_ERROR_INVALID_VALUE);
    destroy_graph(graph);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) { return destroy(graph, false); }
EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) { return destroy(exec, true); }
