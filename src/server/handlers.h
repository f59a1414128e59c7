// The commands, by file. What each one does and replies is documented by Redis; README.md lists the
// differences.
#pragma once

#include "server/command.h"

namespace hako::server::commands {

// string_commands.cc
void Get(Call& call);
void Set(Call& call);
void SetNx(Call& call);
void SetEx(Call& call);
void PSetEx(Call& call);
void GetSet(Call& call);
void GetDel(Call& call);
void GetEx(Call& call);
void MGet(Call& call);
void MSet(Call& call);
void MSetNx(Call& call);
void StrLen(Call& call);

// value_commands.cc
void Append(Call& call);
void GetRange(Call& call);
void SetRange(Call& call);
void Incr(Call& call);
void Decr(Call& call);
void IncrBy(Call& call);
void DecrBy(Call& call);
void IncrByFloat(Call& call);

// bit_commands.cc
void SetBit(Call& call);
void GetBit(Call& call);
void BitCount(Call& call);

// expiry_commands.cc
void Expire(Call& call);
void PExpire(Call& call);
void ExpireAt(Call& call);
void PExpireAt(Call& call);
void Ttl(Call& call);
void PTtl(Call& call);
void ExpireTime(Call& call);
void PExpireTime(Call& call);
void Persist(Call& call);

// keyspace_commands.cc
void Del(Call& call);
void Exists(Call& call);
void Type(Call& call);
void Keys(Call& call);
void RandomKey(Call& call);
void Scan(Call& call);
void Rename(Call& call);
void RenameNx(Call& call);
void Copy(Call& call);
void DbSize(Call& call);
void FlushAll(Call& call);
void ObjectEncoding(Call& call);
void ObjectRefCount(Call& call);
void MemoryUsage(Call& call);

// transaction_commands.cc
void Multi(Call& call);
void Exec(Call& call);
void Discard(Call& call);
void Watch(Call& call);
void Unwatch(Call& call);

// connection_commands.cc
void Ping(Call& call);
void Echo(Call& call);
void Quit(Call& call);
void Reset(Call& call);
void Select(Call& call);
void Hello(Call& call);
void Auth(Call& call);
void ClientId(Call& call);
void ClientGetName(Call& call);
void ClientSetName(Call& call);
void ClientSetInfo(Call& call);
void ClientReply(Call& call);
void ClientInfo(Call& call);
void ClientList(Call& call);
void ClientNoEvict(Call& call);

// client_kill_command.cc
void ClientKill(Call& call);

// acl_commands.cc
void AclWhoAmI(Call& call);
void AclList(Call& call);
void AclUsers(Call& call);
void AclCat(Call& call);

// server_commands.cc
void ConfigGet(Call& call);
void ConfigSet(Call& call);
void ConfigResetStat(Call& call);
void Time(Call& call);
void Role(Call& call);
void Wait(Call& call);
void LastSave(Call& call);
void Shutdown(Call& call);
void FunctionFlush(Call& call);
void SlowLogGet(Call& call);
void SlowLogLen(Call& call);
void SlowLogReset(Call& call);
void LatencyHistogram(Call& call);
void LatencyReset(Call& call);
void Info(Call& call);  // info_command.cc

// command_table.cc
void CommandAll(Call& call);
void CommandCount(Call& call);
void CommandInfo(Call& call);
void CommandDocs(Call& call);
void CommandList(Call& call);
void CommandGetKeys(Call& call);

// hako_commands.cc
void HakoRange(Call& call);
void HakoCas(Call& call);
void HakoBackup(Call& call);
void HakoCheck(Call& call);
void HakoStat(Call& call);

// table_row_commands.cc
void TablePut(Call& call);
void TableDel(Call& call);
void TableGet(Call& call);
void TableCount(Call& call);
void TableStat(Call& call);

// table_query_commands.cc
void TableQuery(Call& call);
void TableExplain(Call& call);

// table_schema_commands.cc
void TableIndex(Call& call);
void TableColumn(Call& call);

}  // namespace hako::server::commands
