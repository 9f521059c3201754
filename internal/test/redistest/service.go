package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
)

// Service is an endpoint with the rules of a managed Redis service or of a proxy, in front of
// real servers. The vendor's page has the rules that its constructor names; everything
// else is as on Redis. So it shows what these rules do to a client, and not that a client works
// on the service.
type Service struct {
	Addr    string    // where clients connect: "127.0.0.1:port"
	Servers []*Server // what holds the keys

	cluster bool // clients connect to it as to a cluster
}

// URL is the endpoint in the form that redisstore.Open reads.
func (s *Service) URL() string {
	if s.cluster {
		return "redis://" + s.Addr + "," + s.Addr // two seeds mean a cluster
	}
	return "redis://" + s.Addr
}

// NewHiddenCluster is one endpoint for a cluster of three masters. It sends each command to the
// node of its first key's slot, and that node answers CROSSSLOT when the keys lie in several slots.
//
//   - "Azure Managed Redis architecture", Cluster policies: the Enterprise policy.
//     https://learn.microsoft.com/azure/redis/architecture#cluster-policies
//   - "Multi-key operations": databases of Redis Cloud and Redis Software with several shards and
//     without the OSS Cluster API.
//     https://redis.io/docs/latest/operate/rs/databases/durability-ha/clustering/#multikey-operations
//
// The services divide MGET, DEL and a few other commands of several slots; this one does not.
func NewHiddenCluster(t testing.TB) *Service {
	t.Helper()
	nodes := StartCluster(t).Nodes[:masters]
	return newFront(t, &front{
		servers: nodes,
		route:   func(key string) int { return (slotOf(hashTag(key))*masters + masters - 1) / slots },
		answer:  withoutClusterAPI,
	})
}

// withoutClusterAPI answers CLUSTER as a Redis that is none.
func withoutClusterAPI(command []string) string {
	if command[0] == "CLUSTER" {
		return "-ERR This instance has cluster support disabled\r\n"
	}
	return ""
}

// NewSingleNodeCluster is one server in cluster mode that owns all slots, the simplest endpoint
// that looks like one Redis and answers CROSSSLOT.
func NewSingleNodeCluster(t testing.TB) *Service {
	t.Helper()
	s := startNodeOfAllSlots(t)
	return &Service{Addr: s.Addr, Servers: []*Server{s}}
}

// startNodeOfAllSlots runs a server in cluster mode that owns all slots.
func startNodeOfAllSlots(t testing.TB, args ...string) *Server {
	t.Helper()
	Need(t)
	if p, _ := theProgram(); p.name == "KeyDB" {
		t.Skip("a node of KeyDB runs commands with keys of several of its slots")
	}
	args = append([]string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"}, args...)
	s, err := boot(t, options{args: args, bus: true})
	if err != nil {
		t.Fatal(err)
	}

	// CLUSTER ADDSLOTS, since ADDSLOTSRANGE came with Redis 7.0.
	ctx, all := context.Background(), make([]int, slots)
	for i := range all {
		all[i] = i
	}
	if err := s.Client().ClusterAddSlots(ctx, all...).Err(); err != nil {
		t.Fatal(s.explain(err))
	}

	// A node does not serve its slots in the first two seconds.
	err = poll(patience, func() error {
		info := s.Client().ClusterInfo(ctx).Val()
		if state := field(info, "cluster_state"); state != "ok" {
			return fmt.Errorf("cluster_state is %q", state)
		}
		return nil
	})
	if err != nil {
		t.Fatal(s.explain(err))
	}
	return s
}

// NewTairProxy is [NewSingleNodeCluster] with the errors of Alibaba Cloud's proxy, which wants a
// script's keys declared and in one slot. (It may also check the text of scripts; this one does not.)
//
// "Lua scripting in Tair", Cluster instance constraints:
// https://www.alibabacloud.com/help/en/redis/support/usage-of-lua-scripts
func NewTairProxy(t testing.TB) *Service {
	t.Helper()
	return newFront(t, &front{
		servers: []*Server{startNodeOfAllSlots(t)},
		answer: func(command []string) string {
			if isScript(command) && command[2] == "0" {
				return "-ERR for redis cluster, eval/evalsha number of keys can't be negative or zero\r\n"
			}
			return withoutClusterAPI(command)
		},
		edit: func(reply string) string {
			if strings.HasPrefix(reply, "-CROSSSLOT") {
				return "-ERR eval/evalsha command keys must be in same slot\r\n"
			}
			return reply
		},
	})
}

// NewFirstKeyProxy is a proxy for two servers. It sends a script to the server of its first key,
// by the hash tag of that key, and does not look at the other keys, which the script then reads
// and writes on the wrong server.
//
//   - twemproxy, "redis": a script goes to the server of its first key, unchecked; hash tags are in
//     "recommendation". https://github.com/twitter/twemproxy/blob/master/notes/redis.md
//   - Envoy, "Redis": supports hash tags and EVAL; EvalRequest in command_splitter_impl.cc goes by
//     the first key. https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/other_protocols/redis
//   - China Telecom Cloud DCS: a cluster computes the slot of a script by its first key.
//     https://ctyun.cn/document/10000043/10015713
func NewFirstKeyProxy(t testing.TB) *Service {
	t.Helper()
	return newFront(t, &front{
		servers: []*Server{Start(t), Start(t)},
		route:   func(key string) int { return slotOf(hashTag(key)) % 2 },
		answer:  withoutClusterAPI,
	})
}

// NewTaglessProxy is [NewFirstKeyProxy] without hash tags: it goes by the whole first key, as
// twemproxy does whose pool has no hash_tag.
// https://github.com/twitter/twemproxy/blob/master/notes/recommendation.md
func NewTaglessProxy(t testing.TB) *Service {
	t.Helper()
	return newFront(t, &front{
		servers: []*Server{Start(t), Start(t)},
		route:   func(key string) int { return slotOf(key) % 2 },
		answer:  withoutClusterAPI,
	})
}

// NewRouter is a proxy that sends each command to the server that route returns for its first key. It returns the URL.
func NewRouter(t testing.TB, route func(key string) int, servers ...*Server) (url string) {
	t.Helper()
	return newFront(t, &front{servers: servers, route: route, answer: withoutClusterAPI}).URL()
}

// NewHelloCloser is a proxy for one server that closes the connection on HELLO, as twemproxy does
// with each command that is not in its list.
// https://github.com/twitter/twemproxy/blob/master/notes/redis.md
func NewHelloCloser(t testing.TB) *Service {
	t.Helper()
	return newFront(t, &front{
		servers: []*Server{Start(t)},
		answer: func(command []string) string {
			if command[0] == "HELLO" {
				return hangUp
			}
			return ""
		},
	})
}

// NewServerless is one endpoint that owns all slots, in the manner of ElastiCache Serverless: a
// command has at most 3,999 arguments, and a script declares its keys, of one slot. The service
// speaks TLS only; this endpoint does not. The texts of its two errors are not known.
//
// "Supported and restricted commands":
// https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/SupportedCommands.html
func NewServerless(t testing.TB) *Service {
	t.Helper()
	return newFront(t, &front{servers: []*Server{startNodeOfAllSlots(t)}, answer: serverless})
}

// NewServerlessWithoutTime is [NewServerless] that refuses TIME in scripts, as users have seen it.
// https://github.com/cristipufu/aspnetcore-redis-rate-limiting/issues/154
func NewServerlessWithoutTime(t testing.TB) *Service {
	t.Helper()
	return newFront(t, &front{
		servers: []*Server{startNodeOfAllSlots(t, "--rename-command", "TIME", "")},
		answer:  serverless,
		edit: func(reply string) string { // before Redis 7.0, and since
			reply = strings.Replace(reply, "Unknown Redis command called from Lua script", "This Redis command is not allowed from scripts", 1)
			for _, unknown := range []string{"Unknown Redis command", "Unknown command"} {
				reply = strings.Replace(reply, unknown+" called from script", "This Redis command is not allowed from script", 1)
			}
			return reply
		},
	})
}

func serverless(command []string) string {
	const most = 3999
	switch {
	case len(command)-1 > most:
		return "-ERR too many arguments\r\n"
	case isScript(command) && command[2] == "0":
		return "-ERR the script does not declare its keys\r\n"
	}
	return ""
}

// NewWithoutScripts is a Redis without EVAL and EVALSHA.
//
//   - "Sharded Clusters" of Oracle's OCI Cache: "Lua script isn't supported for sharded clusters".
//     https://docs.oracle.com/iaas/Content/ocicache/shardedclusters.htm
func NewWithoutScripts(t testing.TB) *Service {
	t.Helper()
	s := Start(t, "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "")
	return &Service{Addr: s.Addr, Servers: []*Server{s}}
}

// NewNodeWithoutCrossSlot is a cluster of one node that rejects scripts with the flag
// allow-cross-slot-keys, which is a flag of Redis 7.0 and Valkey, and of no documented service.
// https://redis.io/docs/latest/develop/programmability/lua-api/#script_flags
func NewNodeWithoutCrossSlot(t testing.TB) *Service {
	t.Helper()
	// The node tells clients the front's address in place of its own.
	listener := listenAnywhere(t)
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	node := startNodeOfAllSlots(t, "--cluster-announce-ip", host, "--cluster-announce-port", port)

	s := newFront(t, &front{
		listener: listener,
		servers:  []*Server{node},
		answer: func(command []string) string {
			if command[0] == "EVAL" && strings.HasPrefix(command[1], "#!") && strings.Contains(command[1], "allow-cross-slot-keys") {
				return "-ERR Unexpected flag in script shebang: allow-cross-slot-keys\r\n"
			}
			return ""
		},
	})

	s.cluster = true
	return s
}
