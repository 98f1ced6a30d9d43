-- The clients of `scripts/oncall/live transactions`, by mode:
--   row    update one row in a transaction of three statements
--   chain  update it in one of two, the second of which is COMMIT AND CHAIN
--   beside update that row alone, and sleep for 10 ms, which is in the latency that sysbench says
--   reads  point selects
--   open   the same in one transaction that never ends
--   short  the same in transactions of 150
local ffi = require("ffi")
ffi.cdef("int usleep(unsigned int microseconds);")

sysbench.cmdline.options = {
   mode = {"row, chain, beside, reads, open or short", "reads"},
   tables = {"as of the other loads: there is one", 1},
   table_size = {"rows", 100000},
}

local update = "UPDATE sbtest1 SET k = k + 1 WHERE id = 1"
local short = 150

function thread_init()
   con = sysbench.sql.driver():connect()
   count = 0
   mode = sysbench.opt.mode
   if mode == "open" or mode == "chain" then con:query("BEGIN") end
end

function event()
   if mode == "row" then
      con:query("BEGIN")
      con:query(update)
      con:query("COMMIT")
   elseif mode == "chain" then
      con:query(update)
      con:query("COMMIT AND CHAIN")
   elseif mode == "beside" then
      con:query(update)
      ffi.C.usleep(10000)
   else
      if mode == "short" and count % short == 0 then con:query("BEGIN") end
      count = count + 1
      con:query("SELECT c FROM sbtest1 WHERE id = " .. count % 1000 + 1)
      if mode == "short" and count % short == 0 then con:query("COMMIT") end
   end
end

function thread_done()
   con:disconnect()
end
