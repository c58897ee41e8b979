"""What may answer a request. A server that says anything else is not believed.

Law: a part of the client is given a refusal, or a reply of a kind that answers what it asked for.
"""

from oncemq.errors import Corrupt
from oncemq.protocol import client_replies, client_requests, replies, requests
from oncemq.protocol.replies import Reply
from oncemq.protocol.requests import Request

ANSWERS: dict[type[Request], tuple[type[Reply], ...]] = {
    client_requests.Compare: (client_replies.Compared,),
    client_requests.ForgetClient: (replies.Done,),
    requests.Lease: (replies.Done,),
    client_requests.ListClients: (client_replies.ClientList,),
    requests.CommitRequest: (replies.CommitDone,),
    requests.ConfigureTopic: (replies.Done,),
    requests.CreateTopic: (replies.Done,),
    requests.DeleteTopic: (replies.Done,),
    requests.DropStage: (replies.Done,),
    requests.Get: (replies.Messages,),
    requests.Hello: (replies.Welcome, replies.TakenReply),
    requests.Leave: (replies.Done,),
    requests.ListSubscriptions: (replies.SubscriptionList,),
    requests.ListTopics: (replies.TopicList,),
    requests.Listen: (replies.ListeningAnswer, replies.Done),
    requests.Put: (replies.PutAccepted,),
    requests.Read: (replies.Messages,),
    requests.Resume: (replies.Resumed,),
    requests.Settle: (replies.Done,),
    requests.ShowTopic: (replies.TopicShown,),
    requests.StagePut: (replies.StagedReply,),
    requests.StatusRequest: (replies.StatusReport,),
    requests.Subscribe: (replies.Subscribed,),
    requests.Unsubscribe: (replies.Unsubscribed,),
    requests.WatchEnds: (replies.Ends,),
}


def check_answer(asked: type[Request], reply: Reply) -> None:
    """Refuse what is no answer to this."""
    if type(reply) not in ANSWERS[asked]:
        raise Corrupt(
            f"{asked.__name__} was asked for, and the server answered {type(reply).__name__}: "
            "nobody knows what it has done. Is it a OnceMQ server?"
        )
